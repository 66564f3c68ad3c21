/* Decides when a unit's weights are on the device, and lists FETCH, GATHER, EXPAND and ENCODE of each
 * interval. */
#include "base/err.h"
#include "base/mem.h"
#include "offload/plan_parts.h"

#include <string.h>

/* A device buffer for a plane of a whole unit. */
static int plane_whole(
        struct builder *b, int u, enum plane plane, enum buffer_kind kind, enum layout_class layout)
{
	const struct unit *unit = &b->p->map->units[u];

	return plane_is_in(plane, PLANES_CODED)
	               ? unit_buffer(
	                         b, kind, SPACE_DEVICE, layout, u, unit_coded_bytes(unit, plane), DTYPE_U8)
	               : whole_buffer(b, kind, layout, u, plan_plane_dtype(&b->p->policy, plane));
}

/* Lists the copy of this rank's shard of a plane, from host or device, and the gathering of the whole
 * plane. */
static int fetch_plane(
        struct builder *b, int u, enum plane plane, enum buffer_kind kind, enum layout_class layout)
{
	struct plan *p = b->p;
	int dst = plane_whole(b, u, plane, kind, layout), home = plan_device_buffer(&b->state, u, plane);

	if (home >= 0)
		plan_add_op(p, PLAN_OP_COPY, QUEUE_COMM, u, -1, -1);
	else
		plan_add_op(p, PLAN_OP_FETCH, QUEUE_H2D, u, -1, -1);
	plan_add_arg(p, ARG_SRC, home >= 0 ? home : plan_host_buffer(&b->state, u, plane), ACCESS_READ);
	plan_add_arg(p, ARG_DST, dst, ACCESS_WRITE);
	p->h2d_bytes += home >= 0 || dst < 0 ? 0 : p->buffers[dst].bytes / p->map->shard_ranks;
	/* a single rank gathers nothing; on the h2d queue compute's waits then count as waits for the copy */
	plan_add_op(p, PLAN_OP_GATHER, p->map->shard_ranks > 1 ? QUEUE_COMM : QUEUE_H2D, u, -1, -1);
	plan_add_arg(p, ARG_DST, dst, ACCESS_BOTH);
	return dst;
}

/* Lists the update of a unit and of some after it, and the refresh of resident weights, before the unit's
 * first interval. */
static void interval_refresh(struct builder *b, int u)
{
	struct plan *p = b->p;

	if (p->kind != PLAN_TRAIN || p->policy.update_in_backward || b->units[u].is_refreshed)
		return;
	plan_add_updates(p, &b->state, u + UPDATES_AHEAD);
	plan_add_refresh(p, &b->state, u, 1);
	b->units[u].is_refreshed = 1;
}

/* The planes that weights are expanded from, and their buffers while that waits. */
static const struct {
	enum plane plane;
	enum buffer_kind fetched;
} halves[2] = {{PLANE_HI, BUFFER_WEIGHTS_HI}, {PLANE_LO, BUFFER_WEIGHTS_LO}},
  codes[2] = {{PLANE_CODES, BUFFER_WEIGHTS_CODES}, {PLANE_CODE_SCALE, BUFFER_WEIGHTS_SCALES}};

/* Codes as memory has them. */
static void codes_fetch(struct builder *b, struct interval *n, int alone)
{
	int *to[2] = {&n->weight, &n->scales};

	for (int i = 0; i < 2; i++) {
		*to[i] = alone ? plan_device_buffer(&b->state, n->unit, codes[i].plane) : -1;
		if (*to[i] < 0)
			*to[i] = fetch_plane(b, n->unit, codes[i].plane, codes[i].fetched, LAYOUT_WEIGHT);
	}
}

/* Codes that the device makes of the weights. */
static void codes_encode(struct builder *b, struct interval *n, int hi)
{
	int u = n->unit;

	if (hi < 0)
		hi = n->parts[0] = fetch_plane(b, u, PLANE_HI, BUFFER_WEIGHTS_HI, LAYOUT_STREAM);
	n->weight = plane_whole(b, u, PLANE_CODES, BUFFER_WEIGHTS_CODES, LAYOUT_WEIGHT);
	n->scales = plane_whole(b, u, PLANE_CODE_SCALE, BUFFER_WEIGHTS_SCALES, LAYOUT_WEIGHT);
	plan_add_op(b->p, PLAN_OP_ENCODE, QUEUE_COMM, u, -1, -1);
	plan_add_arg(b->p, ARG_HI, hi, ACCESS_READ);
	plan_add_arg(b->p, ARG_CODES, n->weight, ACCESS_WRITE);
	plan_add_arg(b->p, ARG_CODE_SCALE, n->scales, ACCESS_WRITE);
}

static void interval_fetch(struct builder *b, struct interval *n)
{
	struct plan *p = b->p;
	int u = n->unit, is_coded = weight_format_is_coded(p->map->units[u].format), from[2];
	int alone = p->map->shard_ranks == 1; /* a plane on the device is then whole */
	int hi = alone ? plan_device_buffer(&b->state, u, PLANE_HI) : -1;

	interval_refresh(b, u);
	if (p->map->units[u].multiplied) {
		if (is_coded || plan_codes_cross(b, u))
			codes_fetch(b, n, alone);
		else
			codes_encode(b, n, hi);
		return;
	}
	if (!is_coded && !plan_reads_lo(&p->policy)) { /* the plane is the weights */
		n->weight = hi >= 0 ? hi : fetch_plane(b, u, PLANE_HI, BUFFER_WEIGHTS, LAYOUT_WEIGHT);
		return;
	}
	for (int i = 0; i < 2; i++) {
		enum plane plane = is_coded ? codes[i].plane : halves[i].plane;

		from[i] = alone ? plan_device_buffer(&b->state, u, plane) : -1;
		if (from[i] < 0 && b->state.units[u].plane[plane].home != HOME_NONE)
			from[i] = n->parts[i] = fetch_plane(
			        b, u, plane, is_coded ? codes[i].fetched : halves[i].fetched, LAYOUT_STREAM);
	}
	n->weight = whole_buffer(b, BUFFER_WEIGHTS, LAYOUT_WEIGHT, u, p->policy.compute_dtype);
	plan_add_op(p, PLAN_OP_EXPAND, QUEUE_COMM, u, -1, -1);
	for (int i = 0; i < 2; i++)
		plan_add_arg(p, plan_plane_role(is_coded ? codes[i].plane : halves[i].plane), from[i],
		        ACCESS_READ);
	plan_add_arg(p, ARG_DST, n->weight, ACCESS_WRITE);
}

static int visit_reads_weights(const struct builder *b, int v, int stage)
{
	return !visit_is_backward(b, v) || model_backward_reads(b->model, stage);
}

/* The visits that read a unit: visits[first[u]] up to visits[first[u + 1]], each once, in order. */
struct reads {
	int *first, *last, *visits; /* last: the last visit that is noted, -1: none */
};

enum reads_pass { READS_COUNT, READS_NOTE };

/* Counts the reads of a visit's stages in first[u + 1], or notes them at first[u]. */
static void stages_read(const struct builder *b, struct reads *r, int v, enum reads_pass pass, int first,
        int end, int is_forward)
{
	for (int s = first; s < end; s++) {
		const struct model_stage *stage = &b->model->stages[s];

		if (!is_forward && !visit_reads_weights(b, v, s))
			continue;
		for (int i = 0; i < stage->tensor_count; i++) {
			int u = unit_map_stage_piece(b->p->map, s, stage->tensor[i])->unit;

			if (r->last[u] == v)
				continue;
			r->last[u] = v;
			if (pass == READS_COUNT)
				r->first[u + 1]++;
			else
				r->visits[r->first[u]++] = v;
		}
	}
}

/* Groups that share activations are computed again at the first visit of their backward. */
static void visit_reads(const struct builder *b, struct reads *r, int v, enum reads_pass pass)
{
	int g = visit_group(b, v), first, end;

	stages_read(b, r, v, pass, group_first(b, g), group_end(b, g), 0);
	if (b->model->groups[g].first != g && group_recomputes(b, v, &first, &end))
		stages_read(b, r, v, pass, first, end, 1);
}

static void reads_free(struct reads *r)
{
	mem_free(r->first);
	mem_free(r->last);
	mem_free(r->visits);
}

static int reads_find(struct reads *r, const struct builder *b)
{
	int units = b->p->map->unit_count;

	r->first = mem_alloc((size_t)units + 1, sizeof(*r->first));
	r->last = mem_alloc((size_t)units, sizeof(*r->last));
	if (!r->first || !r->last)
		return ERR_NOMEM;
	memset(r->last, -1, (size_t)units * sizeof(*r->last));
	for (int v = 0; v < b->visit_count; v++)
		visit_reads(b, r, v, READS_COUNT);
	for (int u = 0; u < units; u++)
		r->first[u + 1] += r->first[u];
	r->visits = mem_alloc((size_t)r->first[units] + 1, sizeof(*r->visits));
	if (!r->visits)
		return ERR_NOMEM;
	memset(r->last, -1, (size_t)units * sizeof(*r->last));
	for (int v = 0; v < b->visit_count; v++)
		visit_reads(b, r, v, READS_NOTE);
	for (int u = units; u > 0; u--) /* noting moved each begin to its end */
		r->first[u] = r->first[u - 1];
	r->first[0] = 0;
	return 0;
}

/* Uses at most max(distance + 1, 2) visits apart share an interval. So a block next to the head, or a unit
 * that every block reads, is not fetched twice. */
static void unit_intervals_find(struct builder *b, int u, const struct reads *r)
{
	int stays = b->p->policy.keep_gathered && b->p->map->shard_ranks > 1;
	struct interval *open = NULL;

	for (int i = r->first[u]; i < r->first[u + 1]; i++) {
		int v = r->visits[i], distance = visit_distance(b, v);
		int reach = distance + 1 > 2 ? distance + 1 : 2;

		if (open && (stays || v - open->last <= reach)) {
			open->last = v;
			continue;
		}
		open = &b->intervals[b->interval_count++];
		*open = (struct interval){
		        .unit = u, .first = v, .last = v, .weight = -1, .scales = -1, .parts = {-1, -1}};
		open->emit = v - distance > 0 ? v - distance : 0;
	}
}

/* Sorts intervals by their first visit, then by unit. Those of visit v are by_first[first_at[v]] up to
 * first_at[v + 1]. */
static void intervals_sort(struct builder *b)
{
	int *at = b->first_at;

	for (int i = 0; i < b->interval_count; i++)
		at[b->intervals[i].first + 1]++;
	for (int v = 0; v < b->visit_count; v++)
		at[v + 1] += at[v];
	for (int i = b->interval_count - 1; i >= 0; i--)
		b->by_first[--at[b->intervals[i].first + 1]] = i;
	/* entry v + 1 now has the begin of visit v */
	for (int v = 0; v < b->visit_count; v++)
		at[v] = at[v + 1];
	at[b->visit_count] = b->interval_count;
}

/* Makes room for as many intervals as there are reads. */
static int intervals_alloc(struct builder *b, int reads)
{
	intervals_free(b);
	b->intervals = mem_alloc((size_t)reads + 1, sizeof(*b->intervals));
	b->by_first = mem_alloc((size_t)reads + 1, sizeof(*b->by_first));
	b->first_at = mem_alloc((size_t)b->visit_count + 1, sizeof(*b->first_at));
	return b->intervals && b->by_first && b->first_at ? 0 : ERR_NOMEM;
}

void intervals_free(struct builder *b)
{
	mem_free(b->intervals);
	mem_free(b->by_first);
	mem_free(b->first_at);
	b->interval_count = 0;
}

int intervals_find(struct builder *b)
{
	int units = b->p->map->unit_count;
	struct reads reads = {0};
	int rc = reads_find(&reads, b);

	if (!rc)
		rc = intervals_alloc(b, reads.first[units]);
	for (int u = 0; u < units && !rc; u++) {
		b->units[u].first_interval = b->interval_count;
		unit_intervals_find(b, u, &reads);
	}
	if (!rc) {
		b->units[units].first_interval = b->interval_count;
		intervals_sort(b);
	}
	reads_free(&reads);
	return rc;
}

/* The end in by_first of the intervals that can be listed by visit v: at most prefetch_units + 1 visits
 * ahead. */
static int fetches_end(const struct builder *b, int v)
{
	int end = v + b->p->policy.prefetch_units + 2;

	return b->first_at[end < b->visit_count ? end : b->visit_count];
}

/* Lists fetches in the order in which they are needed. */
void fetches_emit(struct builder *b, int v, enum emit_moment moment)
{
	int post = b->p->policy.backward_prefetch == BACKWARD_PREFETCH_POST;
	int end = fetches_end(b, v);

	for (int i = b->first_at[v]; i < end; i++) {
		struct interval *n = &b->intervals[b->by_first[i]];
		int is_post = post && visit_is_backward(b, n->first) && n->first > 0;

		if (n->weight >= 0 || rows_cross(b, n->unit))
			continue;
		if (is_post ? moment == EMIT_AFTER && n->first == v + 1
		            : moment == EMIT_BEFORE && n->emit <= v)
			interval_fetch(b, n);
	}
}

/* Keeps the bytes of planes that are joined ahead through the visit during which they are copied. Otherwise
 * work of that visit could reuse the bytes and would wait for the copy. */
void fetches_hold(struct builder *b, int v)
{
	int end = fetches_end(b, v);

	for (int i = b->first_at[v]; i < end; i++) {
		struct interval *n = &b->intervals[b->by_first[i]];

		if (n->first > v) {
			plan_hold_buffer(b->p, n->parts[0]);
			plan_hold_buffer(b->p, n->parts[1]);
		}
		n->parts[0] = n->parts[1] = -1;
	}
}

static const struct interval *interval_at(const struct builder *b, int v, int u)
{
	for (int i = b->units[u].first_interval; i < b->units[u + 1].first_interval; i++)
		if (b->intervals[i].first <= v && v <= b->intervals[i].last)
			return &b->intervals[i];
	return NULL;
}

/* The rows that the last operation looks up; -1 unless it is a forward. */
static int rows_arg(const struct builder *b, int u)
{
	const struct plan_op *op = &b->p->ops[b->p->op_count - 1];

	return op->kind == PLAN_OP_FORWARD ? rows_buffer(b, u, op->micro) : -1;
}

void weights_arg(struct builder *b, int v, int s)
{
	int units[STAGE_TENSORS_MAX];
	int count = stage_units(b, s, STAGE_ALL, units);
	int is_again = b->model->stages[s].group != visit_group(b, v);

	for (int i = 0; i < count; i++) {
		const struct interval *n = interval_at(b, v, units[i]);

		if (rows_cross(b, units[i])) {
			plan_add_arg(b->p, ARG_WEIGHT, rows_arg(b, units[i]), ACCESS_READ);
		} else if (is_again || visit_reads_weights(b, v, s)) {
			plan_add_arg(b->p, ARG_WEIGHT, n ? n->weight : -1, ACCESS_READ);
			plan_add_arg(b->p, ARG_WEIGHT, n ? n->scales : -1, ACCESS_READ);
		}
	}
}
