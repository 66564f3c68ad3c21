/* Large blocks of host memory: weights, optimizer state, arenas, staging.
 *
 * A slab is mapped, not allocated: exactly its bytes (to the page), zero-filled on first touch, in huge
 * pages if the system has them. On several NUMA nodes the owner may assign runs of a slab to nodes
 * (slab_run). Other pages are interleaved over the nodes of this process, so no node carries the whole load,
 * whichever thread touches a page first. The device counts slabs (device/device.h).
 *
 * A page is on one node. A border between runs of 32 MiB and more moves to the nearest huge page, so at most
 * 1 MiB of 32 is on the neighbour's node. A border between shorter runs moves to the nearest small page, so
 * at most 2 MiB around it lack huge pages.
 */
#ifndef FERRY_HOST_SLAB_H
#define FERRY_HOST_SLAB_H

#include "host/numa.h"

#include <stdint.h>

struct pool;

/* Gap between arrays that are processed together. Bases a power of two apart share a few cache lines, and
 * in-place updates then run at a quarter of the memory's speed. */
enum { SLAB_SKEW_BYTES = 4096 + 256 };

/* Assigns bytes [first_bytes, first_bytes + bytes) of a slab to the workers of pool node `node`, os_index in
 * the system. Runs of a slab ascend and do not overlap. */
struct slab_run {
	int64_t first_bytes, bytes;
	int node, os_index;
};

/* bytes > 0; `what` names the slab in the message. ERR_NOMEM if the system refuses. Any thread. */
int slab_map(void **base, int64_t bytes, const char *what);

/* The same with runs. If the system refuses to bind, the slab works without it; slab_find shows the result.
 */
int slab_map_runs(void **base, int64_t bytes, const char *what, const struct slab_run *runs, int run_count);
void slab_unmap(void *base, int64_t bytes); /* NULL is allowed */

/* Touches all pages of [first_bytes, first_bytes + bytes) on all threads, first those of runs. Threads of a
 * run's node touch it, which places its pages even if binding is refused. Kernels before 5.14 leave pages
 * untouched. ERR_NOMEM. */
int slab_touch(struct pool *pool, void *base, int64_t first_bytes, int64_t bytes, const struct slab_run *runs,
        int run_count);

/* Adds the placement of one run's pages to *found. */
void slab_find(struct numa_found *found, const void *base, const struct slab_run *run);

/* Bytes of the slab in huge pages now (proc(5), smaps); -1: unknown. */
int64_t slab_huge_bytes(const void *base, int64_t bytes);

#endif
