/* Staging: host memory for copies to and from the device, except planes. It holds rings of returned
 * gradients, offloaded block inputs, index arrays and results. Plans set the layout (SPACE_STAGING).
 *
 * On several NUMA nodes each place of a gradient ring is divided like a shard (store_node_range), so an
 * update finds its gradient on its own node. Units of different sizes share these bytes in turn. The
 * division follows the most frequent size, which is a block's. All other memory is interleaved over the
 * nodes, because only copies use it.
 */
#ifndef FERRY_OFFLOAD_STAGING_H
#define FERRY_OFFLOAD_STAGING_H

#include "offload/store.h"

struct staging;

/* Allocates `bytes`, at least as much as each plan needs; NULL plans are skipped. If the pool uses one of
 * several nodes, all memory is on that node. ERR_NOMEM. */
int staging_open(struct staging **staging, struct device *device, struct plan *const *plans, int plan_count,
        int64_t bytes, enum slab_kind crossing, struct pool *pool);
void staging_close(struct staging *staging);

char *staging_base(const struct staging *staging);

/* Where the pages of each node's part of the rings are, weighted by the gradients that return in one
 * execution of each plan. Returns the number of nodes, 0 on a machine with one node or without rings. */
int staging_get_placement(const struct staging *staging, struct store_placement *nodes, int max);

#endif
