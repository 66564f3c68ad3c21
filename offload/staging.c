/* Allocates staging memory and places its pages on NUMA nodes. */
#include "offload/staging.h"

#include "base/err.h"
#include "base/mem.h"
#include "host/pool.h"
#include "host/slab.h"

#include <stdlib.h>

/* A place of a ring: a range of bytes to which gradients of one size return. */
struct ring {
	int64_t offset, bytes, count; /* count: elements of the shard */
	int uses;                     /* units that return here, over all plans */
};

struct staging {
	struct device *device;
	struct pool *pool;
	void *base;
	struct ring *rings; /* only on several nodes; most used first */
	int ring_count;
	struct slab_run *runs;
	int run_count;
};

static struct ring *ring_find(struct staging *s, const struct plan_buffer *b)
{
	for (int i = 0; i < s->ring_count; i++)
		if (s->rings[i].offset == b->offset && s->rings[i].bytes == b->bytes)
			return &s->rings[i];
	s->rings[s->ring_count] = (struct ring){b->offset, b->bytes, b->bytes / dtype_bytes(b->dtype), 0};
	return &s->rings[s->ring_count++];
}

static int most_used(const void *a, const void *b)
{
	const struct ring *x = a, *y = b;

	if (x->uses != y->uses)
		return x->uses > y->uses ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int rings_find(struct staging *s, struct plan *const *plans, int plan_count)
{
	int most = 0;

	for (int p = 0; p < plan_count; p++)
		most += plans[p] ? plans[p]->buffer_count : 0;
	s->rings = mem_alloc((size_t)most, sizeof(*s->rings));
	if (!s->rings)
		return ERR_NOMEM;
	for (int p = 0; p < plan_count; p++)
		for (int i = 0; plans[p] && i < plans[p]->buffer_count; i++) {
			const struct plan_buffer *b = &plans[p]->buffers[i];

			if (b->space == SPACE_STAGING && b->unit >= 0 && b->bytes)
				ring_find(s, b)->uses++;
		}
	qsort(s->rings, (size_t)s->ring_count, sizeof(*s->rings), most_used);
	return 0;
}

static int is_free(const struct staging *s, const struct ring *ring)
{
	for (int i = 0; i < s->run_count; i++)
		if (s->runs[i].first_bytes < ring->offset + ring->bytes &&
		        ring->offset < s->runs[i].first_bytes + s->runs[i].bytes)
			return 0;
	return 1;
}

/* A node's part of a ring's place; may be empty. */
static struct slab_run part_of(const struct staging *s, const struct ring *ring, int node)
{
	int64_t first, end, width = ring->bytes / ring->count;

	store_node_range(s->pool, node, &first, &end, ring->count);
	return (struct slab_run){
	        ring->offset + first * width, (end - first) * width, node, pool_node_os_index(s->pool, node)};
}

static int by_address(const void *a, const void *b)
{
	const struct slab_run *x = a, *y = b;

	return x->first_bytes < y->first_bytes ? -1 : x->first_bytes > y->first_bytes;
}

static int runs_find(struct staging *s)
{
	s->runs = mem_alloc((size_t)s->ring_count * (size_t)pool_node_count(s->pool), sizeof(*s->runs));
	if (!s->runs)
		return ERR_NOMEM;
	for (int i = 0; i < s->ring_count; i++) {
		if (!is_free(s, &s->rings[i]))
			continue;
		for (int node = 0; node < pool_node_count(s->pool); node++) {
			struct slab_run run = part_of(s, &s->rings[i], node);

			if (run.bytes)
				s->runs[s->run_count++] = run;
		}
	}
	qsort(s->runs, (size_t)s->run_count, sizeof(*s->runs), by_address);
	return 0;
}

/* Puts all memory on one node, the only one of several that the pool uses. */
static int run_whole(struct staging *s, int64_t bytes, int os_index)
{
	s->runs = mem_alloc(1, sizeof(*s->runs));
	if (!s->runs)
		return ERR_NOMEM;
	s->runs[s->run_count++] = (struct slab_run){.bytes = bytes, .os_index = os_index};
	return 0;
}

int staging_open(struct staging **out, struct device *device, struct plan *const *plans, int plan_count,
        int64_t bytes, enum slab_kind crossing, struct pool *pool)
{
	struct staging *s = mem_alloc(1, sizeof(*s));
	int node = pool ? pool_node_os_index(pool, 0) : -1, rc = 0;

	*out = NULL;
	if (!s)
		return ERR_NOMEM;
	s->device = device;
	s->pool = pool;
	if (node >= 0 && device_has_bytes(device) && pool_node_count(pool) == 1) {
		rc = run_whole(s, bytes, node);
	} else if (node >= 0 && device_has_bytes(device)) {
		rc = rings_find(s, plans, plan_count);
		rc = rc ? rc : runs_find(s);
	}
	if (!rc)
		rc = device_slab_open_runs(device, &s->base, bytes, crossing, s->runs, s->run_count);
	if (!rc && s->ring_count && !numa_may_bind())
		rc = slab_touch(pool, s->base, 0, bytes, s->runs, s->run_count);
	if (rc)
		staging_close(s);
	else
		*out = s;
	return rc;
}

void staging_close(struct staging *s)
{
	if (!s)
		return;
	device_slab_close(s->device, s->base);
	mem_free(s->rings);
	mem_free(s->runs);
	mem_free(s);
}

char *staging_base(const struct staging *s)
{
	return s->base;
}

/* *sum += times * *found */
static void found_add(struct numa_found *sum, const struct numa_found *found, int times)
{
	sum->right_bytes += times * found->right_bytes;
	sum->wrong_bytes += times * found->wrong_bytes;
	sum->absent_bytes += times * found->absent_bytes;
	sum->untold_bytes += times * found->untold_bytes;
}

int staging_get_placement(const struct staging *s, struct store_placement *nodes, int max)
{
	int count = s->ring_count ? pool_node_count(s->pool) : 0;

	for (int n = 0; n < count && n < max; n++) {
		nodes[n] = (struct store_placement){.os_index = pool_node_os_index(s->pool, n)};
		for (int i = 0; i < s->ring_count; i++) {
			struct slab_run run = part_of(s, &s->rings[i], n);
			struct numa_found found = {0};

			if (!run.bytes)
				continue;
			slab_find(&found, s->base, &run);
			nodes[n].bytes += s->rings[i].uses * run.bytes;
			found_add(&nodes[n].found, &found, s->rings[i].uses);
		}
	}
	return count;
}
