/* The world: the ranks of this run, and what they agree on outside of the device.
 *
 * Mental model. Without a launcher the world is this process alone, MPI is not touched, and everything here
 * returns at once. Under a launcher, world_start joins the ranks. From then on all ranks walk through the
 * same code: each call here is made by all, in the same order, from the program's own thread. A rank that
 * fails calls world_end with its error; the others, wherever they wait for it, get that error too, so that
 * all end with one exit code.
 */
#ifndef FERRY_COMM_WORLD_H
#define FERRY_COMM_WORLD_H

#include "comm/heartbeat.h"

#include <stdint.h>

/* Where this rank stands: in the world, and among the ranks of its host. */
struct world {
	int rank, size, local_rank, local_size;
};

/* Joins the ranks that a launcher started. Once, before other threads. Of what keeps the ranks of this host
 * from coming through it join->lost is told (heartbeat.h; local_size is found out). ERR_UNSUPPORTED
 * (no MPI in this build, or another MPI than the launcher's), ERR_DEVICE. */
int world_start(const struct heartbeat_join *join);

/* Rank 0 of 1 before world_start. Valid for ever. */
const struct world *world_self(void);

/* What this rank does from here on, for those that wait for it: heartbeat.h. */
void world_set_phase(const char *text, enum heartbeat_phase phase);

/* How long a rank waits for others before it gives the run up and names the one in the way; 0: for ever. */
void world_set_patience(int64_t timeout_ns);

/* `bytes` of rank `root` reach all. */
int world_broadcast(void *values, int64_t bytes, int root);

/* Sums over ranks, in their order, in place; all get the same bits. */
int world_sum(double *values, int count);

/* 0 where every rank gave 0, else the code of the lowest rank that did not; the text, on ranks that gave 0,
 * names it: "rank 2: ...". For failures that all ranks are to meet together: what may fail on some of them
 * before an exchange, which they would not come to, is agreed on first. An error that all have from an
 * agreement already is passed on as it is, so agreements may be nested. */
int world_agree(int code);

/* This rank's run is over with `code` and this thread's text. Waits for the others; returns the code that all
 * end with. On rank 0 `report` is called with each error, rank 0's first and those of ranks that say
 * something else after it (rank -1: that of all, or one whose text names its rank), before the others are let
 * go: launchers end a job, and what it still has to say, with its first process that fails. Where rank 0 does
 * not answer, a rank reports its own error. After it the world is this process alone, but for world_leave. */
typedef void world_report(void *context, int rank, const char *text);
int world_end(int code, world_report *report, void *context);

/* May memory that ranks exchange be freed after `code`? Not where they failed: another rank may be reading
 * it, and exchanges of other threads are left as they are until the process ends. */
int world_can_free(int code);

/* Leaves the ranks, where all are there to do so. MPI may hang in it: nothing of this run depends on its
 * return. */
void world_leave(void);

#endif
