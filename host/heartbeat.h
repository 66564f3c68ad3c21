/* Heartbeats: what the ranks of one host see of each other without asking.
 *
 * Mental model. The ranks of a host map one small file. A thread of each rank writes the time into its line
 * there every tenth of a second, and each rank writes what it is doing: a phase (a step, loading) and the
 * exchange that it waits in, if it does. A process that is stopped, or hangs in the kernel, stops beating;
 * one that runs in circles beats, but comes to no exchange. So a rank that has waited too long can name the
 * one that is in the way, and what that one did last. MPI is not involved: it may be what is stuck.
 *
 * The file has no name once all have it, so nothing is left behind. Ranks of other hosts are not seen.
 */
#ifndef FERRY_HOST_HEARTBEAT_H
#define FERRY_HOST_HEARTBEAT_H

#include <stdint.h>

/* In a phase that is patient (loading, saving) a rank may do without exchanges for any time. */
enum heartbeat_phase { HEARTBEAT_BRISK, HEARTBEAT_PATIENT };

/* key: the same for all ranks of the host and for no others. Where no file can be shared a rank sees itself
 * only. ERR_NOMEM, ERR_IO. */
int heartbeat_start(int64_t key, int rank, int local_rank, int local_size);

/* All have mapped it: the name goes. */
void heartbeat_unlink(void);
void heartbeat_stop(void);

/* What this rank does from here on; short. */
void heartbeat_set_phase(const char *text, enum heartbeat_phase phase);
/* The exchange that it waits in; NULL: none any more. */
void heartbeat_set_exchange(const char *what);

/* This rank waited waited_ns in `what` for the rank `peer`. Returns 0 where that is no reason to give up,
 * else ERR_DEVICE with a text that names the rank in the way. */
int heartbeat_judge(const char *what, int peer, int64_t waited_ns);

#endif
