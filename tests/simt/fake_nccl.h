/* An NCCL for the emulator. Linked into a program, it replaces the library before main.
 *
 * Ranks are processes. They share memory that fake_nccl_share maps before the fork; without it, a world
 * has only one rank. A collective is a piece of work of its stream. Like a kernel of NCCL, it waits for
 * the same piece of the other ranks, and ends early if its communicator is aborted. Calls take time:
 * initialising, queueing and finalising return ncclInProgress first.
 *
 * Misuse counts as a finding: a call before an earlier one has finished, different calls on different
 * ranks, or destroying a communicator that was not finalised.
 */
#ifndef FERRY_TESTS_SIMT_FAKE_NCCL_H
#define FERRY_TESTS_SIMT_FAKE_NCCL_H

#include <stdint.h>

enum { FAKE_NCCL_RANKS_MAX = 4, FAKE_NCCL_BYTES_MAX = 1 << 20 /* of a collective's buffer */ };

/* Maps the shared memory of ranks. Call it in the parent, once per world. 0 or -1. */
int fake_nccl_share(void);

enum fake_nccl_fault {
	FAKE_NCCL_NONE,
	FAKE_NCCL_NO_ID,    /* ncclGetUniqueId fails */
	FAKE_NCCL_NO_INIT,  /* ncclCommInitRankConfig fails at once */
	FAKE_NCCL_BAD_INIT, /* it fails later, when the caller asks for its result */
	FAKE_NCCL_REFUSE,   /* a collective fails when it is queued */
	FAKE_NCCL_ERROR,    /* the communicator gets an error and the collective hangs */
	FAKE_NCCL_HANG,     /* the collective never ends, without an error */
	FAKE_NCCL_SLOW,     /* the collective is 50 ms late */
};

/* Sets a fault of this process. For faults of collectives, n is the number of the collective (from 1). */
void fake_nccl_break(enum fake_nccl_fault fault, int n);

struct fake_nccl_stats {
	int64_t live_count; /* communicators */
	int64_t collective_count, abort_count, finding_count;
};
void fake_nccl_get_stats(struct fake_nccl_stats *stats);

#endif
