/* Large blocks of host memory: planes, arenas, staging.
 *
 * A slab is mapped, never allocated: exactly its bytes (to the page), zero-filled on first touch, in huge
 * pages where the system gives them. On a machine of several NUMA nodes its owner may say which runs of it
 * belong to which node (slab_run); all else goes round the nodes that this process may use, so that no node's
 * memory alone bears the load, whichever thread touches a page first. Who counts slabs is the device
 * (device/device.h).
 *
 * A page has one node. A border between runs of 32 MiB and more is moved to the nearest huge page, so at most
 * 1 MiB of 32 lies on the neighbour's node; between shorter ones to the nearest small page, so that huge ones
 * are missing for at most 2 MiB around it.
 */
#ifndef FERRY_HOST_SLAB_H
#define FERRY_HOST_SLAB_H

#include "host/numa.h"

#include <stdint.h>

struct pool;

/* Left between planes that are walked together: bases a power of two apart share the same few lines of the
 * caches, and in-place updates then run at a quarter of the memory's speed. */
enum { SLAB_SKEW_BYTES = 4096 + 256 };

/* Bytes [first_bytes, first_bytes + bytes) of a slab are for the workers of pool node `node`, which is
 * os_index to the system. Runs of a slab are ascending and do not overlap. */
struct slab_run {
	int64_t first_bytes, bytes;
	int node, os_index;
};

/* bytes > 0; `what` names the slab in the message. ERR_NOMEM where the system refuses. Any thread. */
int slab_map(void **base, int64_t bytes, const char *what);

/* The same with runs; where binding is refused it goes without, and slab_find tells. */
int slab_map_runs(void **base, int64_t bytes, const char *what, const struct slab_run *runs, int run_count);
void slab_unmap(void *base, int64_t bytes); /* NULL is allowed */

/* Touches all pages of [first_bytes, first_bytes + bytes), on all threads; those of runs before the others,
 * and each by threads of its node, which is what places it where binding is refused. Kernels before 5.14
 * leave pages untouched. ERR_NOMEM. */
int slab_touch(struct pool *pool, void *base, int64_t first_bytes, int64_t bytes, const struct slab_run *runs,
        int run_count);

/* Adds to *found where the pages of one run are. */
void slab_find(struct numa_found *found, const void *base, const struct slab_run *run);

/* How many bytes of the slab are in huge pages now (proc(5), smaps); -1 where the system does not say. */
int64_t slab_huge_bytes(const void *base, int64_t bytes);

#endif
