/* Binds address ranges to NUMA nodes before their pages are touched, and verifies the placement afterwards.
 *
 * Mental model. With numa_prefer the kernel takes a range's pages from one node. It uses another node only if
 * that one is full, because a stopped run would be worse than slow pages. numa_spread interleaves pages over
 * all nodes of this process. Neither moves existing pages. numa_find queries page by page. On a machine that
 * FERRY_TOPOLOGY describes (topology.h), a record of the requests replaces mbind and move_pages, for pages
 * that exist.
 *
 * Nodes are named by the system's numbers (os_index). Containers may forbid these calls (Docker does without
 * CAP_SYS_NICE): then pages go to the node of the thread that touches them first.
 */
#ifndef FERRY_HOST_NUMA_H
#define FERRY_HOST_NUMA_H

#include <stdint.h>

/* Bytes of a range by the result of numa_find. */
struct numa_found {
	int64_t right_bytes;  /* on the requested node */
	int64_t wrong_bytes;  /* on another */
	int64_t absent_bytes; /* never touched, so without a page */
	int64_t untold_bytes; /* unknown: the system forbids the query, or will move the page itself */
};

/* Page-aligned base; bytes > 0. A node below 0 (from a pool without nodes) means no preference. ERR_DEVICE
 * with the system's text if it refuses; the range stays usable. Any thread. */
int numa_prefer(void *base, int64_t bytes, int os_index);
int numa_spread(void *base, int64_t bytes);

/* Call before the range is unmapped. */
void numa_forget(void *base, int64_t bytes);

/* Adds the placement of the range's pages to *found. Beyond 16384 pages it samples at most so many, evenly
 * spread, and scales. */
void numa_find(struct numa_found *found, const void *base, int64_t bytes, int os_index);

/* 1 if this process may bind memory (tried once on one page). */
int numa_may_bind(void);

#endif
