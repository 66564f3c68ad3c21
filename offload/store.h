/* The store: the planes of this rank's shards that live in host memory.
 *
 * Mental model. A plane is one array over the shards of the units that it has, one behind the other in unit
 * order: hi 2 bytes an element, lo 2, m and v 4, 2 or 1 with scales of their own (plan_policy), the gradient
 * 2 or 4 and only where the plan keeps one. Which planes there are, and of which units, is the plan's word
 * (its SPACE_STORE buffers). Those that cross to the device (plan_plane_crosses) lie in one slab of kind
 * `crossing` (pinned, unless that is not wanted), the others in a pageable one; bases are skewed, because
 * planes a power of two apart fight for the same cache sets.
 *
 * On a machine of several NUMA nodes each unit's shard is cut into one run of elements a node, as long as the
 * node has workers (store_node_range), the same in every plane, whatever its elements are. Each run's pages
 * are asked for on its node, and the cpu queue's work on those elements goes to the workers there
 * (run_work.c). Gradients that return into a ring are placed by offload/staging.h.
 *
 * Source: the two-plane master is this program's (docs/design/numerics.md). Everything starts as zero.
 */
#ifndef FERRY_OFFLOAD_STORE_H
#define FERRY_OFFLOAD_STORE_H

#include "host/numa.h"
#include "offload/plan.h"

struct pool;
struct store;

/* Bytes of the store's slabs, by enum slab_kind: planes and the gaps that skew their bases. */
void store_bytes_of(int64_t slab_bytes[2], const struct plan *plan, enum slab_kind crossing);

/* ERR_NOMEM with the bytes asked for. Runs are cut for this pool's nodes; NULL: a machine of one. The device
 * and the map must outlive the store. */
int store_open(struct store **store, struct device *device, const struct plan *plan, enum slab_kind crossing,
        struct pool *pool);
void store_close(struct store *store);

/* First byte of a unit's shard in a plane; NULL where the plan has it elsewhere or not at all. */
void *store_at(const struct store *store, enum plane plane, int unit);

/* Elements [*first, *end) of a shard of `count` elements are pool node `node`'s. */
void store_node_range(const struct pool *pool, int node, int64_t *first, int64_t *end, int64_t count);

/* Where the pages of a node's runs are. */
struct store_placement {
	int os_index;
	int64_t bytes; /* of its runs */
	struct numa_found found;
};

/* Of the pool's nodes, at most `max`; returns how many there are, 0 on a machine of one node. Takes up to
 * some tenths of a second. */
int store_get_placement(const struct store *store, struct store_placement *nodes, int max);

/* Bytes of all slabs, and of those in huge pages now (-1: unknown). */
void store_get_pages(const struct store *store, int64_t *bytes, int64_t *huge_bytes);

#endif
