/* An NCCL for the emulator: linked into a program, it takes the library's place there before main.
 *
 * Ranks are processes. They meet in memory that fake_nccl_share maps before they are forked; without it only
 * a world of one can be made. A collective is a piece of work of the stream that waits for the same piece of
 * the other ranks, as a kernel of NCCL does, and ends early when its communicator is aborted. Calls take
 * their time: initialising, queueing and finalising answer ncclInProgress first.
 *
 * Misuse (calls before an earlier one has finished, ranks that differ in what they call, destroying what was
 * not finalised) is counted as a finding.
 */
#ifndef FERRY_TESTS_SIMT_FAKE_NCCL_H
#define FERRY_TESTS_SIMT_FAKE_NCCL_H

#include <stdint.h>

enum { FAKE_NCCL_RANKS_MAX = 4, FAKE_NCCL_BYTES_MAX = 1 << 20 /* of a collective's buffer */ };

/* Maps what the ranks share. In the parent, once per world. 0 or -1. */
int fake_nccl_share(void);

enum fake_nccl_fault {
	FAKE_NCCL_NONE,
	FAKE_NCCL_NO_ID,    /* ncclGetUniqueId fails */
	FAKE_NCCL_NO_INIT,  /* ncclCommInitRankConfig fails at once */
	FAKE_NCCL_BAD_INIT, /* it fails later, while its result is asked for */
	FAKE_NCCL_REFUSE,   /* a collective is refused when it is queued */
	FAKE_NCCL_ERROR,    /* the communicator has an error when the collective runs, and that hangs */
	FAKE_NCCL_HANG,     /* the collective never ends, and nobody says why */
	FAKE_NCCL_SLOW,     /* it comes 50 ms late */
};

/* What goes wrong in this process, at the n-th collective (1 is the first) where it is about one. */
void fake_nccl_break(enum fake_nccl_fault fault, int n);

struct fake_nccl_stats {
	int64_t live_count; /* communicators */
	int64_t collective_count, abort_count, finding_count;
};
void fake_nccl_get_stats(struct fake_nccl_stats *stats);

#endif
