/* The world: the ranks of this run, and their agreements outside of the device.
 *
 * Mental model. Without a launcher the world is this process alone, MPI is not touched, and everything here
 * returns at once. Under a launcher, world_start joins the ranks. From then on all ranks run the same code:
 * they make the same calls here, in the same order, from the program's own thread. A rank that fails calls
 * world_end with its error. The others get that error too, wherever they wait for it, so all end with one
 * exit code.
 */
#ifndef FERRY_COMM_WORLD_H
#define FERRY_COMM_WORLD_H

#include "comm/heartbeat.h"

#include <stdint.h>

/* The position of this rank in the world and among the ranks of its host. */
struct world {
	int rank, size, local_rank, local_size;
};

/* Joins the ranks that a launcher started. Call once, before other threads. Calls join->lost if ranks of this
 * host cannot complete it (heartbeat.h); sets join->local_size itself. ERR_UNSUPPORTED
 * (no MPI in this build, or another MPI than the launcher's), ERR_DEVICE. */
int world_start(const struct heartbeat_join *join);

/* Rank 0 of 1 before world_start. Valid for ever. */
const struct world *world_self(void);

/* Sets the phase of this rank, for the messages of ranks that wait for it (heartbeat.h). */
void world_set_phase(const char *text, enum heartbeat_phase phase);

/* How long a rank waits for others before it gives the run up and names the one in the way; 0: for ever. */
void world_set_patience(int64_t timeout_ns);

/* Copies `bytes` of rank `root` to all ranks. */
int world_broadcast(void *values, int64_t bytes, int root);

/* Sums over ranks, in their order, in place; all get the same bits. */
int world_sum(double *values, int count);

/* Returns 0 if every rank passed 0, else the code of the lowest rank that did not. On the other ranks the
 * text names that rank: "rank 2: ...". Call it after a step that may fail on some ranks, before the next
 * exchange: a failed rank would not reach the exchange. An error from an earlier agreement is passed on
 * unchanged, so agreements may be nested. */
int world_agree(int code);

/* Ends this rank's run with `code` and this thread's text. Waits for the others; returns the code that all
 * end with. Rank 0 calls `report` with each error: its own first, then those of ranks with another error.
 * rank -1: the error of all ranks, or the text names the rank. Rank 0 reports before it lets the others go,
 * because a launcher ends a job and its output with the first process that fails. If rank 0 does not answer,
 * a rank reports its own error. Afterwards the world is this process alone; only world_leave still knows the
 * ranks. */
typedef void world_report(void *context, int rank, const char *text);
int world_end(int code, world_report *report, void *context);

/* 1 if memory that ranks exchange may be freed after `code`. 0 after a failure: another rank may still read
 * it, and exchanges of other threads stay as they are until the process ends. */
int world_can_free(int code);

/* Leaves the ranks if all answered at the end. MPI may hang in it, so nothing of this run depends on its
 * return. */
void world_leave(void);

#endif
