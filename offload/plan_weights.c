/* When a unit's weights are on the device: intervals of visits, and the FETCH, GATHER and JOIN that begin
 * each. Uses closer than the prefetch distance share an interval, so a block next to the head, or a unit that
 * every block reads, is not fetched twice. */
#include "base/err.h"
#include "base/mem.h"
#include "offload/plan_parts.h"

/* The whole plane of a unit: the own shard, from the host or from where it lives on the device, and the
 * others'. */
static int fetch_plane(
        struct builder *b, int u, enum store_plane plane, const char *what, enum place_rank rank)
{
	struct plan *p = b->p;
	int dst = whole_buffer(b, what, rank, u, DTYPE_BF16), home = b->state.device[plane][u];

	if (home >= 0)
		plan_add_op(p, PLAN_PLACE, QUEUE_COMM, u, -1, -1);
	else
		plan_add_op(p, PLAN_FETCH, QUEUE_H2D, u, -1, -1);
	plan_add_arg(p, ARG_SRC, home >= 0 ? home : b->state.host[plane][u], ACCESS_READ);
	plan_add_arg(p, ARG_DST, dst, ACCESS_WRITE);
	p->h2d_bytes += home >= 0 ? 0 : 2 * p->map->units[u].shard_count;
	/* alone there is nothing to wait for but the copy: compute then stands still for h2d, and says so */
	plan_add_op(p, PLAN_GATHER, p->map->world_size > 1 ? QUEUE_COMM : QUEUE_H2D, u, -1, -1);
	plan_add_arg(p, ARG_DST, dst, ACCESS_BOTH);
	return dst;
}

/* Weights that stay are those of the last update once the first interval has renewed them. */
static void interval_refresh(struct builder *b, int u)
{
	struct plan *p = b->p;

	if (p->kind != PLAN_TRAIN || p->policy.update_in_backward || b->refreshed[u])
		return;
	plan_add_refresh(p, &b->state, u, 1);
	b->refreshed[u] = 1;
}

static void interval_fetch(struct builder *b, struct interval *n)
{
	struct plan *p = b->p;
	const struct plan_policy *o = &p->policy;
	int u = n->unit;
	int alone = p->map->world_size == 1; /* what is at home on the device is whole */
	int hi = alone ? b->state.device[STORE_HI][u] : -1, lo = alone ? b->state.device[STORE_LO][u] : -1;

	interval_refresh(b, u);
	if (o->compute_dtype == DTYPE_BF16) {
		n->weight = hi >= 0 ? hi : fetch_plane(b, u, STORE_HI, "weights", PLACE_WEIGHT);
		return;
	}
	if (hi < 0)
		hi = n->hi = fetch_plane(b, u, STORE_HI, "weights hi", PLACE_STREAM);
	if (lo < 0)
		lo = n->lo = fetch_plane(b, u, STORE_LO, "weights lo", PLACE_STREAM);
	n->weight = whole_buffer(b, "weights", PLACE_WEIGHT, u, DTYPE_F32);
	plan_add_op(p, PLAN_JOIN, QUEUE_COMM, u, -1, -1);
	plan_add_arg(p, ARG_HI, hi, ACCESS_READ);
	plan_add_arg(p, ARG_LO, lo, ACCESS_READ);
	plan_add_arg(p, ARG_DST, n->weight, ACCESS_WRITE);
}

/* Units whose weights a visit reads, marked. Backward through the embedding needs none. */
static void visit_mark(const struct builder *b, char *reads, int v)
{
	int g = visit_group(b, v);

	if (visit_is_backward(b, v) && g == 0)
		return;
	for (int s = b->group_first[g]; s < b->group_first[g + 1]; s++)
		for (int i = 0; i < b->model->stages[s].tensor_count; i++)
			reads[b->p->map->tensor_unit[b->model->stages[s].tensor[i]]] = 1;
}

static void unit_intervals_find(struct builder *b, int u, const char *reads)
{
	int stays = b->p->policy.keep_gathered && b->p->map->world_size > 1;
	struct interval *open = NULL;

	for (int v = 0; v < b->visit_count; v++) {
		int distance = visit_distance(b, v);
		int reach = distance + 1 > 2 ? distance + 1 : 2;

		if (!reads[(size_t)v * (size_t)b->p->map->unit_count + (size_t)u])
			continue;
		if (open && (stays || v - open->last <= reach)) {
			open->last = v;
			continue;
		}
		open = &b->intervals[b->interval_count++];
		*open = (struct interval){.unit = u, .first = v, .last = v, .weight = -1, .hi = -1, .lo = -1};
		open->emit = v - distance > 0 ? v - distance : 0;
	}
}

int intervals_find(struct builder *b)
{
	size_t units = (size_t)b->p->map->unit_count;
	char *reads = mem_alloc((size_t)b->visit_count, units);

	mem_free(b->intervals);
	b->interval_count = 0;
	b->intervals = mem_alloc(units * ((size_t)b->visit_count + 1), sizeof(*b->intervals));
	if (!b->intervals || !reads) {
		mem_free(reads);
		return ERR_NOMEM;
	}
	for (int v = 0; v < b->visit_count; v++)
		visit_mark(b, reads + (size_t)v * units, v);
	for (int u = 0; u < (int)units; u++)
		unit_intervals_find(b, u, reads);
	mem_free(reads);
	return 0;
}

/* FETCHes that policy lists at this moment of visit v, in the order in which they are needed; none is listed
 * further ahead than by the prefetch distance, or by one. */
void fetches_emit(struct builder *b, int v, enum emit_moment moment)
{
	int post = b->p->policy.backward_prefetch == BACKWARD_PREFETCH_POST;
	int reach = b->p->policy.prefetch_units + 1; /* further ones are not listed yet */

	for (int first = v; first < b->visit_count && first - v <= reach; first++)
		for (int i = 0; i < b->interval_count; i++) {
			struct interval *n = &b->intervals[i];
			int is_post = post && visit_is_backward(b, n->first) && n->first > 0;

			if (n->first != first || n->weight >= 0)
				continue;
			if (is_post ? moment == EMIT_AFTER && n->first == v + 1
			            : moment == EMIT_BEFORE && n->emit <= v)
				interval_fetch(b, n);
		}
}

/* Planes that are joined ahead keep their bytes through the visit beside which they cross: its work would
 * wait for the copy otherwise. */
void fetches_hold(struct builder *b, int v)
{
	for (int i = 0; i < b->interval_count; i++) {
		struct interval *n = &b->intervals[i];

		if (n->first > v) {
			plan_hold_buffer(b->p, n->hi);
			plan_hold_buffer(b->p, n->lo);
		}
		n->hi = n->lo = -1;
	}
}

static int interval_weight(const struct builder *b, int v, int u)
{
	for (int i = 0; i < b->interval_count; i++)
		if (b->intervals[i].unit == u && b->intervals[i].first <= v && v <= b->intervals[i].last)
			return b->intervals[i].weight;
	return -1;
}

void weights_arg(struct builder *b, int v, int s)
{
	int units[STAGE_TENSORS_MAX];
	int count = stage_units(b, s, units);

	if (!visit_is_backward(b, v) || visit_group(b, v) > 0)
		for (int i = 0; i < count; i++)
			plan_add_arg(b->p, ARG_WEIGHT, interval_weight(b, v, units[i]), ACCESS_READ);
}
