/* Staging: host memory of a run that crosses to the device and back and is no plane: rings of gradients
 * that return, block inputs that leave, index arrays, results. Plans say what lies where (SPACE_STAGING).
 *
 * On a machine of several NUMA nodes the places of a gradient ring are cut as shards are
 * (store_node_range), so that an update finds its gradient on its own node too. Units of other sizes that
 * take turns in the same bytes cannot all have their way: the cut is that of the size that comes most often,
 * which is a block's. All else goes round the nodes; copies alone touch it.
 */
#ifndef FERRY_OFFLOAD_STAGING_H
#define FERRY_OFFLOAD_STAGING_H

#include "offload/store.h"

struct staging;

/* Room for `bytes`, at least what each of the plans takes; NULL plans are none. Where the pool has one of
 * several nodes, all of it is there. ERR_NOMEM. */
int staging_open(struct staging **staging, struct device *device, struct plan *const *plans, int plan_count,
        int64_t bytes, enum slab_kind crossing, struct pool *pool);
void staging_close(struct staging *staging);

char *staging_base(const struct staging *staging);

/* Of the gradients that return into rings in one execution of each plan, each unit counted as often as it
 * comes: where the pages of a node's part are. Returns the nodes, 0 on a machine of one and without rings. */
int staging_get_placement(const struct staging *staging, struct store_placement *nodes, int max);

#endif
