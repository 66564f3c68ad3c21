/* What the machine's memory can do: per NUMA node, between nodes, and all of it at once.
 *
 * Bytes are counted as read and written, without what a cache fetches to overwrite it. Each figure is the
 * best round of a few: others' load only takes away. Buffers are several times the last cache where memory
 * allows.
 */
#ifndef FERRY_BENCH_BANDWIDTH_H
#define FERRY_BENCH_BANDWIDTH_H

#include "host/topology.h"

enum { BANDWIDTH_NODES_MAX = 16 };

struct bandwidth {
	int threads, node_count; /* nodes that the threads run on, at most BANDWIDTH_NODES_MAX of them */
	int os_index[BANDWIDTH_NODES_MAX];
	int node_threads[BANDWIDTH_NODES_MAX];
	double copy_bytes_per_s; /* all threads, each on its node's memory */
	double rmw3_bytes_per_s; /* the same: three arrays read and written in place, as AdamW uses memory */
	/* copies by the threads of node i, of memory of node j; the diagonal is a node's own bandwidth */
	double between[BANDWIDTH_NODES_MAX][BANDWIDTH_NODES_MAX];
	int is_bound; /* memory is where it was asked for; where not, `between` says nothing and is 0 */
	int64_t buffer_bytes, huge_bytes; /* of all buffers, and in huge pages of those; -1: unknown */
};

/* Takes about budget_s, and memory (freed again) of a sixteenth of what is usable at most; all rates 0 where
 * that is too little to say anything. ERR_NOMEM, ERR_DEVICE (no more threads). */
int bandwidth_measure(struct bandwidth *b, const struct topology *t, int threads, double budget_s);

#endif
