/* Measures the machine's memory bandwidth: of each NUMA node, between nodes, and of all at once.
 *
 * Bytes are counted as read and written, without lines that a cache fetches only to overwrite them. Each
 * figure is the best of several rounds, because other load only makes it lower. Buffers are several times the
 * last-level cache if memory allows.
 */
#ifndef FERRY_BENCH_BANDWIDTH_H
#define FERRY_BENCH_BANDWIDTH_H

#include "host/topology.h"

enum { BANDWIDTH_NODES_MAX = 16 };

struct bandwidth {
	int threads, node_count; /* nodes with threads, at most BANDWIDTH_NODES_MAX */
	int os_index[BANDWIDTH_NODES_MAX];
	int node_threads[BANDWIDTH_NODES_MAX];
	double copy_bytes_per_s; /* all threads, each in its node's memory */
	double rmw3_bytes_per_s; /* the same: three arrays read and written in place, as AdamW uses memory */
	/* [i][j]: copies by threads of node i in memory of node j; the diagonal is a node's own bandwidth */
	double between[BANDWIDTH_NODES_MAX][BANDWIDTH_NODES_MAX];
	int is_bound;                     /* 1: memory is on the requested nodes; else `between` is 0 */
	int64_t buffer_bytes, huge_bytes; /* bytes of all buffers, and of those in huge pages; -1: unknown */
};

/* Takes about budget_s, and for that time at most a sixteenth of the usable memory. All rates are 0 if that
 * is too little to measure. ERR_NOMEM, ERR_DEVICE (no more threads). */
int bandwidth_measure(struct bandwidth *b, const struct topology *t, int threads, double budget_s);

#endif
