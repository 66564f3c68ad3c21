/* The store: the planes of this rank's shards that live in host memory.
 *
 * Mental model. A plane is one array over the shards of its units, in unit order. Bytes per element: hi 2, lo
 * 2, m and v 4, 2 or 1 (8-bit state also has planes of scales), the gradient 2 or 4 and only if the plan
 * keeps one. The plan decides which planes exist and for which units (its SPACE_STORE buffers). Planes that
 * the device copies (plan_plane_crosses) share one slab of kind `crossing`, usually pinned; the others share
 * a pageable one. The bases are skewed, because planes a power of two apart compete for the same cache sets.
 *
 * On several NUMA nodes each unit's shard is divided into one run of elements per node, in proportion to the
 * node's workers (store_node_range). The runs are the same in every plane. ferry requests each run's pages on
 * its node, and that node's workers do the cpu queue's work on these elements (run_work.c). offload/staging.h
 * places the gradients that return into a ring.
 *
 * All planes start as zero. The two-plane master weight is this program's own (docs/design/numerics.md).
 */
#ifndef FERRY_OFFLOAD_STORE_H
#define FERRY_OFFLOAD_STORE_H

#include "host/numa.h"
#include "offload/plan.h"

struct pool;
struct store;

/* Bytes of the store's slabs, by enum slab_kind: planes and the gaps that skew their bases. */
void store_bytes_of(int64_t slab_bytes[2], const struct plan *plan, enum slab_kind crossing);

/* ERR_NOMEM with the bytes requested. Divides shards over this pool's nodes; NULL: one node. The device and
 * the map must outlive the store. */
int store_open(struct store **store, struct device *device, const struct plan *plan, enum slab_kind crossing,
        struct pool *pool);
void store_close(struct store *store);

/* First byte of a unit's shard in a plane, from a call of store_borrow to that of store_return; NULL if the
 * shard is not in the store, and then nothing is to return. Any thread; who may write is the caller's affair.
 */
void *store_borrow(struct store *store, enum plane plane, int unit);
enum store_use { STORE_READ, STORE_WRITTEN };
void store_return(struct store *store, enum plane plane, int unit, enum store_use use);

/* The same for as long as the store is open, for copies of the device and readers without an end. NULL also
 * if the shard has no lasting place in memory; then borrow it. */
void *store_at(const struct store *store, enum plane plane, int unit);

/* Finds the elements [*first, *end) of a shard of `count` elements that belong to pool node `node`. */
void store_node_range(const struct pool *pool, int node, int64_t *first, int64_t *end, int64_t count);

/* The NUMA nodes that the pages of a node's runs are on. */
struct store_placement {
	int os_index;
	int64_t bytes; /* of its runs */
	struct numa_found found;
};

/* Fills at most `max` nodes of the pool and returns their number, 0 on a machine with one node. Takes up to
 * some tenths of a second. */
int store_get_placement(const struct store *store, struct store_placement *nodes, int max);

/* Bytes of all slabs, and of those in huge pages now (-1: unknown). */
void store_get_pages(const struct store *store, int64_t *bytes, int64_t *huge_bytes);

#endif
