/* Allocates the slabs of host planes, and finds each unit's shard in them. */
#include "offload/store.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "host/pool.h"
#include "host/slab.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>

enum { STORE_ALIGN = 64 };

struct store {
	struct device *device;
	const struct unit_map *map;
	void *slab[2];              /* by enum slab_kind */
	int64_t *at[PLANE_COUNT];   /* per unit: bytes from the plane's begin; -1: not in the store */
	int64_t bytes[PLANE_COUNT]; /* of all its units */
	int64_t first[PLANE_COUNT]; /* begin in its slab, in bytes */
	int64_t slab_bytes[2];
	enum slab_kind kind[PLANE_COUNT]; /* the slab that a plane lies in */
	struct pool *pool;
	atomic_int borrowed;
	struct slab_run *runs[2]; /* of each slab, ascending; none on a machine with one node */
	int run_count[2];
};

/* Finds the units of each plane from the plan's buffers, which are in unit order. */
static int planes_find(struct store *s, const struct plan *plan)
{
	for (int p = 0; p < PLANE_COUNT; p++) {
		s->at[p] = mem_alloc((size_t)s->map->unit_count, sizeof(*s->at[p]));
		if (!s->at[p])
			return ERR_NOMEM;
		for (int u = 0; u < s->map->unit_count; u++)
			s->at[p][u] = -1;
	}
	for (int i = 0; i < plan->buffer_count; i++) {
		const struct plan_buffer *b = &plan->buffers[i];

		if (b->space != SPACE_STORE)
			continue;
		s->at[b->kind][b->unit] = s->bytes[b->kind]; /* kind = number of the plane */
		s->bytes[b->kind] += b->bytes;
	}
	return 0;
}

static enum slab_kind slab_of(const struct plan_policy *policy, enum plane plane, enum slab_kind crossing)
{
	return plan_plane_crosses(policy, plane) ? crossing : SLAB_PAGEABLE;
}

/* Finds the begin of each plane in its slab, and the lengths of the slabs. */
static void planes_place(int64_t first[PLANE_COUNT], int64_t slab_bytes[2], const int64_t bytes[PLANE_COUNT],
        const struct plan_policy *policy, enum slab_kind crossing)
{
	slab_bytes[0] = slab_bytes[1] = 0;
	for (int p = 0; p < PLANE_COUNT; p++) {
		int64_t *end = &slab_bytes[slab_of(policy, (enum plane)p, crossing)];

		if (!bytes[p])
			continue;
		first[p] = *end ? round_up(*end, STORE_ALIGN) + SLAB_SKEW_BYTES : 0;
		*end = first[p] + bytes[p];
	}
}

void store_bytes_of(int64_t slab_bytes[2], const struct plan *plan, enum slab_kind crossing)
{
	int64_t bytes[PLANE_COUNT] = {0}, first[PLANE_COUNT];

	for (int i = 0; i < plan->buffer_count; i++)
		if (plan->buffers[i].space == SPACE_STORE)
			bytes[plan->buffers[i].kind] += plan->buffers[i].bytes;
	planes_place(first, slab_bytes, bytes, &plan->policy, crossing);
}

/* ---- nodes ---- */

void store_node_range(const struct pool *pool, int node, int64_t *first, int64_t *end, int64_t count)
{
	pool_node_range(pool, node, first, end, count, UNIT_ALIGN);
}

/* Adds a shard's runs in one plane, where the shard has `bytes`. A node's bytes are its share of the shard's
 * blocks of UNIT_ALIGN elements, rounded down: many of these may have one scale. */
static void runs_add(struct store *s, enum slab_kind kind, int64_t at, int64_t bytes, int64_t count)
{
	int64_t blocks = count / UNIT_ALIGN, begin = 0;

	for (int node = 0; node < pool_node_count(s->pool); node++) {
		int64_t first, end;

		store_node_range(s->pool, node, &first, &end, count);
		end = bytes / blocks * (end / UNIT_ALIGN) + bytes % blocks * (end / UNIT_ALIGN) / blocks;
		if (begin == end)
			continue;
		s->runs[kind][s->run_count[kind]++] = (struct slab_run){
		        .first_bytes = at + begin,
		        .bytes = end - begin,
		        .node = node,
		        .os_index = pool_node_os_index(s->pool, node),
		};
		begin = end;
	}
}

/* Finds the runs in the order of planes and units, which is the order of addresses. */
static int runs_find(struct store *s)
{
	int units = s->map->unit_count;

	if (!s->pool || pool_node_os_index(s->pool, 0) < 0 || !device_has_bytes(s->device))
		return 0;
	for (int k = 0; k < 2; k++) {
		s->runs[k] = mem_alloc((size_t)PLANE_COUNT * (size_t)units,
		        (size_t)pool_node_count(s->pool) * sizeof(*s->runs[k]));
		if (!s->runs[k])
			return ERR_NOMEM;
	}
	for (int p = 0; p < PLANE_COUNT; p++) {
		int64_t end = s->bytes[p];

		for (int u = 0, next; u < units; u = next) {
			for (next = u + 1; next < units && s->at[p][next] < 0;)
				next++;
			if (s->at[p][u] >= 0)
				runs_add(s, s->kind[p], s->first[p] + s->at[p][u],
				        (next < units ? s->at[p][next] : end) - s->at[p][u],
				        s->map->units[u].shard_count);
		}
	}
	return 0;
}

int store_open(struct store **out, struct device *device, const struct plan *plan, enum slab_kind crossing,
        struct pool *pool)
{
	struct store *s = mem_alloc(1, sizeof(*s));
	int rc;

	if (!s)
		return ERR_NOMEM;
	s->device = device;
	s->map = plan->map;
	s->pool = pool;
	for (int p = 0; p < PLANE_COUNT; p++)
		s->kind[p] = slab_of(&plan->policy, (enum plane)p, crossing);
	rc = planes_find(s, plan);
	if (!rc) {
		planes_place(s->first, s->slab_bytes, s->bytes, &plan->policy, crossing);
		rc = runs_find(s);
	}
	for (int k = 0; k < 2 && !rc; k++)
		if (s->slab_bytes[k])
			rc = device_slab_open_runs(device, &s->slab[k], s->slab_bytes[k], (enum slab_kind)k,
			        s->runs[k], s->run_count[k]);
	if (!rc && s->run_count[0] + s->run_count[1] && !numa_may_bind())
		for (int k = 0; k < 2 && !rc; k++)
			rc = slab_touch(
			        s->pool, s->slab[k], 0, s->slab_bytes[k], s->runs[k], s->run_count[k]);
	if (rc) {
		err_note(rc, "store of %" PRId64 " bytes", s->slab_bytes[0] + s->slab_bytes[1]);
		store_close(s);
		return rc;
	}
	*out = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	assert(!s->borrowed);
	for (int k = 0; k < 2; k++) {
		if (s->slab[k])
			device_slab_close(s->device, s->slab[k]);
		mem_free(s->runs[k]);
	}
	for (int p = 0; p < PLANE_COUNT; p++)
		mem_free(s->at[p]);
	mem_free(s);
}

void *store_at(const struct store *s, enum plane plane, int unit)
{
	if (s->at[plane][unit] < 0)
		return NULL;
	return (char *)s->slab[s->kind[plane]] + s->first[plane] + s->at[plane][unit];
}

void *store_borrow(struct store *s, enum plane plane, int unit)
{
	void *at = store_at(s, plane, unit);

	if (at)
		atomic_fetch_add(&s->borrowed, 1);
	return at;
}

/* Every plane of the store is in memory, so nothing is written back. */
void store_return(struct store *s, enum plane plane, int unit, enum store_use use)
{
	(void)plane;
	(void)unit;
	(void)use;
	atomic_fetch_sub(&s->borrowed, 1);
}

int store_get_placement(const struct store *s, struct store_placement *nodes, int max)
{
	int count = s->run_count[0] + s->run_count[1] ? pool_node_count(s->pool) : 0;

	for (int n = 0; n < count && n < max; n++)
		nodes[n] = (struct store_placement){.os_index = pool_node_os_index(s->pool, n)};
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < s->run_count[k]; i++) {
			const struct slab_run *r = &s->runs[k][i];

			if (r->node >= max)
				continue;
			nodes[r->node].bytes += r->bytes;
			slab_find(&nodes[r->node].found, s->slab[k], r);
		}
	return count;
}

void store_get_pages(const struct store *s, int64_t *bytes, int64_t *huge_bytes)
{
	*bytes = *huge_bytes = 0;
	for (int k = 0; k < 2; k++) {
		int64_t huge = s->slab[k] && device_has_bytes(s->device)
		                       ? slab_huge_bytes(s->slab[k], s->slab_bytes[k])
		                       : 0;

		*bytes += s->slab_bytes[k];
		*huge_bytes = huge < 0 || *huge_bytes < 0 ? -1 : *huge_bytes + huge;
	}
}
