/* The store: the planes of this rank's shards that live in host memory.
 *
 * Mental model. A plane is one array over the shards of the units that it has, one behind the other in unit
 * order: hi 2 bytes an element, lo 2, m and v 4, 2 or 1 with scales of their own (plan_policy), the gradient
 * 2 or 4 and only where the plan keeps one. Which planes there are, and of which units, is the plan's word
 * (its SPACE_STORE buffers). hi and gradient cross to the device and lie in one slab of kind `crossing`
 * (pinned, unless that is not wanted), the others in a pageable one; bases are skewed, because planes a power
 * of two apart fight for the same cache sets.
 *
 * Source: the two-plane master is this program's (docs/numerics.md). Everything starts as zero.
 */
#ifndef FERRY_OFFLOAD_STORE_H
#define FERRY_OFFLOAD_STORE_H

#include "offload/plan.h"

struct store;

/* ERR_NOMEM with the bytes asked for. The device and the map must outlive the store. */
int store_open(struct store **store, struct device *device, const struct plan *plan, enum slab_kind crossing);
void store_close(struct store *store);

/* First byte of a unit's shard in a plane; NULL where the plan has it elsewhere or not at all. */
void *store_at(const struct store *store, enum store_plane plane, int unit);

#endif
