/* Which node's memory backs an address range: asked for before pages are touched, verified after.
 *
 * Mental model. numa_prefer tells the kernel to take a range's pages from one node, and from another only
 * where that one is full: a run that has to stop for a full node would be worse than a slow page.
 * numa_spread deals pages out to all nodes that this process may use. Neither moves what is there already.
 * numa_find asks page by page. All go through a table of three functions: mbind and move_pages, or, on a
 * machine that FERRY_TOPOLOGY made up (topology.h), a ledger of what was asked for, which is believed for
 * pages that are really there.
 *
 * Nodes are named by the system's numbers (os_index). Containers may forbid these calls (Docker does without
 * CAP_SYS_NICE): then pages go to the node of the thread that touches them first.
 */
#ifndef FERRY_HOST_NUMA_H
#define FERRY_HOST_NUMA_H

#include <stdint.h>

/* Bytes of a range, by what was found of them. */
struct numa_found {
	int64_t right_bytes;  /* on the node asked about */
	int64_t wrong_bytes;  /* on another */
	int64_t absent_bytes; /* never touched, so nowhere yet */
	int64_t untold_bytes; /* the system does not say: it forbids the question, or will move the page
	                         itself */
};

/* Page-aligned base; bytes > 0. A node below 0, that of a pool which knows none, is no preference. ERR_DEVICE
 * with the system's words where it refuses; the range is usable all the same. Any thread. */
int numa_prefer(void *base, int64_t bytes, int os_index);
int numa_spread(void *base, int64_t bytes);

/* Before the range is unmapped. */
void numa_forget(void *base, int64_t bytes);

/* Adds to *found where the range's pages are. Of more than 16384 pages it asks for as many, evenly spread,
 * and scales. */
void numa_find(struct numa_found *found, const void *base, int64_t bytes, int os_index);

/* 1: this process may bind memory (tried once on a page of its own). */
int numa_may_bind(void);

#endif
