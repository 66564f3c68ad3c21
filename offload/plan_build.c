/* Lists the operations of a plan. */
#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "model/blocks/blocks.h"
#include "offload/plan_parts.h"

/* A pass is one walk forward and backward: visits to the groups embed, block 0 .. L-1, head, block L-1 .. 0,
 * embed. In layer-major order one pass has all micro-batches, and each visit loops over them. In micro-batch-
 * major order each micro-batch has its own pass. A unit's weights are on the device for intervals of visits
 * (plan_weights.c). */
int visit_group(const struct builder *b, int v)
{
	return v < b->group_count ? v : 2 * (b->group_count - 1) - v;
}

int visit_is_backward(const struct builder *b, int v)
{
	return v >= b->group_count;
}

int device_buffer(
        struct builder *b, enum buffer_kind kind, enum layout_class layout, int64_t bytes, int micro)
{
	int n = plan_add_buffer(b->p, kind, SPACE_DEVICE, layout, bytes);

	if (n >= 0)
		b->p->buffers[n].micro = micro;
	return n;
}

/* A buffer for a whole unit or for one rank's shard of it. */
int unit_buffer(struct builder *b, enum buffer_kind kind, enum plan_space space, enum layout_class layout,
        int u, int64_t count, enum dtype dtype)
{
	int n = plan_add_buffer(b->p, kind, space, layout, count * dtype_bytes(dtype));

	if (n >= 0) {
		b->p->buffers[n].unit = u;
		b->p->buffers[n].dtype = dtype;
	}
	return n;
}

int whole_buffer(struct builder *b, enum buffer_kind kind, enum layout_class layout, int u, enum dtype dtype)
{
	return unit_buffer(b, kind, SPACE_DEVICE, layout, u, b->p->map->units[u].count, dtype);
}

/* POST returns 0 too: it lists transfers after the compute of the visit before. */
int visit_distance(const struct builder *b, int v)
{
	const struct plan_policy *o = &b->p->policy;

	if (!visit_is_backward(b, v))
		return o->forward_prefetch ? o->prefetch_units : 0;
	return o->backward_prefetch == BACKWARD_PREFETCH_PRE ? o->prefetch_units : 0;
}

int stage_units(const struct builder *b, int s, enum stage_tensors which, int *units)
{
	const struct model_stage *stage = &b->model->stages[s];
	int count = 0;

	for (int i = 0; i < stage->tensor_count; i++) {
		int u = b->p->map->tensor_unit[stage->tensor[i]];
		int seen = which == STAGE_TRAINED && !b->p->map->units[u].trainable;

		for (int j = 0; j < count; j++)
			seen |= units[j] == u;
		if (!seen)
			units[count++] = u;
	}
	return count;
}

/* ---- state ---- */

/* Whether the plane is on the host (sides[0]) and on the device (sides[1]). A frozen unit has only weights.
 * They stay in host memory if its optimizer state would be there; resident weights are then a copy. */
static void plane_sides(const struct builder *b, enum plane plane, int u, int *sides)
{
	const struct plan_policy *o = &b->p->policy;
	const struct unit *unit = &b->p->map->units[u];
	const struct unit_home *h = &b->units[u].home;
	int trains = !o->inference && unit->trainable;
	int keeps_gradient = trains && (!o->update_in_backward ||
	                                       (o->order == ORDER_MICRO_BATCH_MAJOR && o->micro_batches > 1));
	int optimizer_on_host = !o->inference && h->optimizer_on_host;
	int lo_is_read = plan_reads_lo(o);

	sides[0] = sides[1] = 0;
	if (plane == PLANE_HI || (plane == PLANE_LO && !o->inference && unit->is_wide)) {
		sides[0] = h->params_on_host || optimizer_on_host;
		sides[1] = !h->params_on_host && (plane == PLANE_HI || lo_is_read || !sides[0]);
	} else if (plane == PLANE_LO && o->inference) {
		sides[0] = h->params_on_host && lo_is_read;
		sides[1] = !h->params_on_host && lo_is_read;
	} else if (plane == PLANE_LO && trains) {
		sides[0] = h->optimizer_on_host;
		sides[1] = !h->optimizer_on_host || (!h->params_on_host && lo_is_read);
	} else if (plane == PLANE_GRADIENT) {
		sides[0] = keeps_gradient && h->gradients_on_host;
		sides[1] = keeps_gradient && !h->gradients_on_host;
	} else if (trains && planes_of(o->state) >> plane & 1) {
		sides[0] = h->optimizer_on_host;
		sides[1] = !h->optimizer_on_host;
	}
}

static void state_plane(struct builder *b, enum plane plane)
{
	struct plan *p = b->p;
	enum dtype dtype = plan_plane_dtype(&p->policy, plane);

	for (int u = 0; u < p->map->unit_count; u++) {
		int64_t count = plane_numbers(plane, p->policy.state, p->map->units[u].shard_count);
		int sides[2];

		plane_sides(b, plane, u, sides);
		for (int device = 0; device < 2; device++) {
			int n = -1;

			if (sides[device])
				n = unit_buffer(b, (enum buffer_kind)plane,
				        device ? SPACE_DEVICE : SPACE_STORE, LAYOUT_PERSISTENT, u, count,
				        dtype);
			(device ? b->state.units[u].device : b->state.units[u].host)[plane] = n;
		}
	}
}

/* Adds buffers for sums of squares. Gradients that are summed on the host are squared there, others on the
 * device. */
static void norm_add(struct builder *b)
{
	struct plan *p = b->p;
	const struct plan_policy *o = &p->policy;
	int sums = o->order == ORDER_MICRO_BATCH_MAJOR && o->micro_batches > 1, on_host = 0, trained = 0;
	int64_t bytes = 8 * plan_norm_slots(b->model, NULL);

	for (int u = 0; u < p->map->unit_count; u++) {
		trained += p->map->units[u].trainable;
		on_host += sums && p->map->units[u].trainable && b->units[u].home.gradients_on_host;
	}
	b->norm_on_device = on_host < trained;
	b->state.norm = plan_add_buffer(p, BUFFER_SUMS_OF_SQUARES, SPACE_DEVICE, LAYOUT_PERSISTENT, bytes);
	b->state.norm_host =
	        plan_add_buffer(p, BUFFER_SUMS_OF_SQUARES, SPACE_STAGING, LAYOUT_PERSISTENT, bytes);
	b->state.norm_sums = b->state.norm_host;
	if (on_host && b->norm_on_device)
		b->state.norm_sums =
		        plan_add_buffer(p, BUFFER_SUMS_OF_SQUARES, SPACE_STAGING, LAYOUT_PERSISTENT, bytes);
}

static void state_add(struct builder *b)
{
	struct plan *p = b->p;
	const struct plan_policy *o = &p->policy;
	int64_t rope_bytes = 4 * model_rope_table_count(b->model, o->rope_positions);
	int64_t loss_bytes = 4 * o->max_targets * (p->kind == PLAN_LOGITS ? b->model->config.V : 1);

	for (int plane = 0; plane < PLANE_COUNT; plane++)
		state_plane(b, (enum plane)plane);
	b->state.rope = rope_bytes ? plan_add_buffer(p, BUFFER_ROPE_TABLE, SPACE_DEVICE, LAYOUT_PERSISTENT,
	                                     rope_bytes)
	                           : -1;
	b->state.cache = -1;
	for (int layer = 0; layer < b->model->config.L && o->cache.rows; layer++) {
		int n = plan_add_buffer(p, BUFFER_CACHE, SPACE_DEVICE, LAYOUT_PERSISTENT,
		        model_cache_bytes(b->model, layer, o->compute_dtype, &o->cache));

		b->state.cache = layer ? b->state.cache : n;
	}
	norm_add(b);
	for (int m = 0; m < o->micro_batches; m++) {
		b->state.batch_host[m] = plan_add_buffer(
		        p, BUFFER_BATCH, SPACE_STAGING, LAYOUT_PERSISTENT, plan_batch_bytes(o));
		b->state.loss_host[m] =
		        plan_add_buffer(p, BUFFER_LOSS, SPACE_STAGING, LAYOUT_PERSISTENT, loss_bytes);
	}
}

/* ---- stages ---- */

static int *slot(int *table, const struct builder *b, int group, int micro)
{
	return &table[group * b->p->policy.micro_batches + micro];
}

static int64_t stream_bytes(const struct builder *b)
{
	return b->p->policy.max_tokens * b->model->config.C * dtype_bytes(b->p->policy.compute_dtype);
}

static int64_t scratch_bytes(const struct builder *b, int g)
{
	const struct plan_policy *o = &b->p->policy;
	int64_t most = 0;

	for (int s = b->group_first[g]; s < b->group_first[g + 1]; s++)
		most = max_i64(most, model_scratch_bytes(b->model, b->model->stages[s].kind, o->compute_dtype,
		                             o->max_tokens, o->max_targets, o->head_rows));
	return most;
}

static int work_buffer(struct builder *b, enum buffer_kind kind, int64_t bytes, int micro)
{
	return bytes ? device_buffer(b, kind, LAYOUT_WORK, bytes, micro) : -1;
}

/* Forward of one group, or its recomputation before backward. */
static void group_forward(struct builder *b, int v, int m, enum plan_op_kind kind, int acts, int scratch)
{
	struct plan *p = b->p;
	int g = visit_group(b, v), last = b->group_first[g + 1] - 1;

	for (int s = b->group_first[g]; s <= last; s++) {
		plan_add_op(p, kind, QUEUE_COMPUTE, -1, s, m);
		weights_arg(b, v, s);
		plan_add_arg(p, ARG_BATCH, b->state.batch[m], ACCESS_READ);
		if (g > 0) {
			plan_add_arg(p, ARG_X, *slot(b->x, b, g, m), ACCESS_READ);
			plan_add_arg(p, ARG_ACTS, acts, ACCESS_BOTH);
			plan_add_arg(p, ARG_ROPE, b->state.rope, ACCESS_READ);
		}
		if (p->kind == PLAN_LOGITS && b->state.cache >= 0 && b->model->stages[s].kind == STAGE_ATTN)
			plan_add_arg(p, ARG_CACHE, b->state.cache + g - 1, ACCESS_BOTH);
		plan_add_arg(p, ARG_SCRATCH, scratch, ACCESS_BOTH);
		if (s == last && kind == PLAN_OP_FORWARD)
			plan_add_arg(p, ARG_Y, *slot(b->x, b, g + 1, m), ACCESS_WRITE);
	}
}

/* Whether the block's activations are kept for its backward. */
static int group_keeps(const struct builder *b, int g)
{
	const struct plan_policy *o = &b->p->policy;

	return b->p->kind == PLAN_TRAIN && g >= b->train_group &&
	       (o->activations == ACTIVATION_KEEP || g >= b->group_count - 1 - o->kept_blocks);
}

static void visit_forward(struct builder *b, int v, int m, int scratch)
{
	struct plan *p = b->p;
	const struct plan_policy *o = &p->policy;
	int g = visit_group(b, v), acts = -1;

	if (g > 0) {
		int64_t bytes = model_acts_bytes(b->model, o->compute_dtype, o->max_tokens);

		acts = work_buffer(b, BUFFER_ACTIVATIONS, bytes, m);
		if (group_keeps(b, g))
			*slot(b->acts_kept, b, g, m) = acts;
	}
	*slot(b->x, b, g + 1, m) = device_buffer(b, BUFFER_BLOCK_INPUTS, LAYOUT_STREAM, stream_bytes(b), m);
	group_forward(b, v, m, PLAN_OP_FORWARD, acts, scratch);
}

static void visit_head(struct builder *b, int v, int m, int scratch)
{
	struct plan *p = b->p;
	int g = b->group_count - 1, s = b->group_first[g];
	int train = p->kind == PLAN_TRAIN, logits = p->kind == PLAN_LOGITS;
	int64_t loss_bytes = p->buffers[b->state.loss_host[m]].bytes;
	int loss = device_buffer(b, BUFFER_LOSS, LAYOUT_WORK, loss_bytes * (p->policy.max_pairs ? 2 : 1), m);

	if (train) {
		gradients_open(b, s);
		b->dx[m] = g > b->train_group ? device_buffer(b, BUFFER_INPUT_GRADIENTS, LAYOUT_STREAM,
		                                        stream_bytes(b), m)
		                              : -1;
	}
	plan_add_op(p, logits ? PLAN_OP_LOGITS : PLAN_OP_HEAD, QUEUE_COMPUTE, -1, s, m);
	weights_arg(b, v, s);
	plan_add_arg(p, ARG_BATCH, b->state.batch[m], ACCESS_READ);
	plan_add_arg(p, ARG_X, *slot(b->x, b, g, m), ACCESS_READ);
	plan_add_arg(p, ARG_SCRATCH, scratch, ACCESS_BOTH);
	plan_add_arg(p, ARG_LOSS, loss, ACCESS_WRITE);
	if (train) {
		plan_add_arg(p, ARG_DX, b->dx[m], ACCESS_WRITE);
		gradients_arg(b, s);
	}
	plan_add_op(p, PLAN_OP_LOSS, QUEUE_D2H, -1, -1, m);
	plan_add_arg(p, ARG_SRC, loss, ACCESS_READ);
	plan_add_arg(p, ARG_DST, b->state.loss_host[m], ACCESS_WRITE);
	p->d2h_bytes += loss_bytes;
}

static void visit_backward(struct builder *b, int v, int m, int scratch)
{
	struct plan *p = b->p;
	const struct plan_policy *o = &p->policy;
	int g = visit_group(b, v);
	int acts = g ? *slot(b->acts_kept, b, g, m) : -1;

	if (g && acts < 0) {
		acts = work_buffer(b, BUFFER_ACTIVATIONS,
		        model_acts_bytes(b->model, o->compute_dtype, o->max_tokens), m);
		group_forward(b, v, m, PLAN_OP_RECOMPUTE, acts, scratch);
	}
	for (int s = b->group_first[g + 1] - 1; s >= b->group_first[g] && s >= b->train_stage; s--) {
		gradients_open(b, s);
		plan_add_op(p, PLAN_OP_BACKWARD, QUEUE_COMPUTE, -1, s, m);
		weights_arg(b, v, s);
		plan_add_arg(p, ARG_BATCH, b->state.batch[m], ACCESS_READ);
		if (g > 0) {
			plan_add_arg(p, ARG_X, *slot(b->x, b, g, m), ACCESS_READ);
			plan_add_arg(p, ARG_ACTS, acts, ACCESS_BOTH);
			plan_add_arg(p, ARG_ROPE, b->state.rope, ACCESS_READ);
		}
		plan_add_arg(p, ARG_SCRATCH, scratch, ACCESS_BOTH);
		plan_add_arg(p, ARG_DX, b->dx[m], g ? ACCESS_BOTH : ACCESS_READ);
		gradients_arg(b, s);
	}
}

/* ---- offloaded block inputs ---- */

/* The last block's input stays, because its backward comes soon after its forward, with only the head
 * between. */
static int group_spills(const struct builder *b, int g)
{
	return b->p->kind == PLAN_TRAIN && b->p->policy.activations == ACTIVATION_OFFLOAD && g > 0 &&
	       g >= b->train_group && g < b->group_count - 2 && !group_keeps(b, g);
}

static void spills_emit(struct builder *b, int g, int m)
{
	struct plan *p = b->p;
	int stage = plan_add_buffer(p, BUFFER_SPILLED_INPUTS, SPACE_STAGING, LAYOUT_STREAM, stream_bytes(b));

	plan_add_op(p, PLAN_OP_SPILL, QUEUE_D2H, -1, b->group_first[g], m);
	plan_add_arg(p, ARG_SRC, *slot(b->x, b, g, m), ACCESS_READ);
	plan_add_arg(p, ARG_DST, stage, ACCESS_WRITE);
	p->d2h_bytes += stream_bytes(b);
	*slot(b->spilled, b, g, m) = stage;
}

static void refills_emit(struct builder *b, int v, int m0, int m1)
{
	struct plan *p = b->p;

	int last = v + p->policy.prefetch_units; /* refills are listed at most this far ahead */

	for (int at = v > b->group_count ? v : b->group_count; at < b->visit_count && at <= last; at++) {
		int g = visit_group(b, at);
		int emit = at - visit_distance(b, at);

		if (!group_spills(b, g) || (emit > g + 1 ? emit : g + 1) != v)
			continue;
		for (int m = m0; m < m1; m++) {
			int back = device_buffer(b, BUFFER_BLOCK_INPUTS, LAYOUT_STREAM, stream_bytes(b), m);

			plan_add_op(p, PLAN_OP_REFILL, QUEUE_H2D, -1, b->group_first[g], m);
			plan_add_arg(p, ARG_SRC, *slot(b->spilled, b, g, m), ACCESS_READ);
			plan_add_arg(p, ARG_DST, back, ACCESS_WRITE);
			p->h2d_bytes += stream_bytes(b);
			*slot(b->x, b, g, m) = back;
		}
	}
}

/* ---- the pass ---- */

static void visit_emit(struct builder *b, int v, int m0, int m1)
{
	int g = visit_group(b, v);
	int64_t bytes = scratch_bytes(b, g);
	int scratch;

	fetches_emit(b, v, EMIT_BEFORE);
	refills_emit(b, v, m0, m1);
	scratch = work_buffer(b, BUFFER_SCRATCH, bytes, -1);
	for (int m = m0; m < m1; m++) {
		if (visit_is_backward(b, v))
			visit_backward(b, v, m, scratch);
		else if (g == b->group_count - 1)
			visit_head(b, v, m, scratch);
		else
			visit_forward(b, v, m, scratch);
		if (!visit_is_backward(b, v) && group_spills(b, g))
			spills_emit(b, g, m);
	}
	fetches_hold(b, v);
	fetches_emit(b, v, EMIT_AFTER);
}

static void pass_emit(struct builder *b, int m0, int m1)
{
	struct plan *p = b->p;

	b->first_micro = m0;
	for (int i = 0; i < b->interval_count; i++)
		b->intervals[i].weight = -1;
	for (int m = m0; m < m1; m++) {
		b->state.batch[m] =
		        device_buffer(b, BUFFER_BATCH, LAYOUT_WORK, plan_batch_bytes(&p->policy), m);
		plan_add_op(p, PLAN_OP_LOAD, QUEUE_H2D, -1, -1, m);
		plan_add_arg(p, ARG_SRC, b->state.batch_host[m], ACCESS_READ);
		plan_add_arg(p, ARG_DST, b->state.batch[m], ACCESS_WRITE);
		p->h2d_bytes += plan_batch_bytes(&p->policy);
	}
	for (b->now = 0; b->now < b->visit_count && !plan_parts_check(p); b->now++) {
		visit_emit(b, b->now, m0, m1);
		if (p->kind == PLAN_TRAIN) {
			gradients_close(b, m0, m1);
			updates_emit(b);
		}
	}
	/* return, update and refresh for the last visit's gradient */
	for (; b->now < b->visit_count + 3 && p->kind == PLAN_TRAIN; b->now++) {
		gradients_close(b, m0, m1);
		updates_emit(b);
	}
}

static void plan_emit(struct builder *b)
{
	struct plan *p = b->p;
	const struct plan_policy *o = &p->policy;

	if (p->kind == PLAN_UPDATE || (p->kind == PLAN_TRAIN && !o->update_in_backward))
		plan_add_updates(p, &b->state);
	if (p->kind == PLAN_UPDATE)
		return;
	if (p->kind != PLAN_TRAIN)
		pass_emit(b, 0, 1);
	else if (o->order == ORDER_LAYER_MAJOR)
		pass_emit(b, 0, o->micro_batches);
	else
		for (int m = 0; m < o->micro_batches; m++)
			pass_emit(b, m, m + 1);
	if (p->kind == PLAN_TRAIN && b->norm_on_device) {
		plan_add_op(p, PLAN_OP_NORM, QUEUE_D2H, -1, -1, -1);
		plan_add_arg(p, ARG_SRC, b->state.norm, ACCESS_READ);
		plan_add_arg(p, ARG_DST, b->state.norm_host, ACCESS_WRITE);
	}
}

/* ---- a plan ---- */

/* Finds intervals and homes. A unit has the same home in every plan of a policy, found from its training
 * pass. */
static int visits_find(struct builder *b)
{
	int train = 2 * b->group_count - 1 - b->train_group,
	    visits = b->p->kind == PLAN_TRAIN ? train : b->group_count, rc;

	b->visit_count = b->p->policy.inference ? b->group_count : train;
	rc = intervals_find(b);
	if (!rc)
		rc = residency_find(b);
	if (!rc && b->visit_count != visits) {
		b->visit_count = visits;
		rc = intervals_find(b);
	}
	gradient_last_find(b);
	return rc;
}

static int *ints_alloc(int count, int value)
{
	int *ints = mem_alloc((size_t)count, sizeof(*ints));

	for (int i = 0; ints && i < count; i++)
		ints[i] = value;
	return ints;
}

static int builder_alloc(struct builder *b)
{
	int units = b->p->map->unit_count, micros = b->p->policy.micro_batches;
	int slots = (b->group_count + 1) * micros;

	b->state.units = mem_alloc((size_t)units, sizeof(*b->state.units));
	b->state.batch = ints_alloc(micros, -1);
	b->state.batch_host = ints_alloc(micros, -1);
	b->state.loss_host = ints_alloc(micros, -1);
	b->group_first = ints_alloc(b->group_count + 1, 0);
	b->x = ints_alloc(slots, -1);
	b->spilled = ints_alloc(slots, -1);
	b->acts_kept = ints_alloc(slots, -1);
	b->dx = ints_alloc(micros, -1);
	b->units = mem_alloc((size_t)units + 1, sizeof(*b->units));
	if (!b->state.units || !b->state.batch || !b->state.batch_host || !b->state.loss_host ||
	        !b->group_first || !b->x || !b->spilled || !b->acts_kept || !b->dx || !b->units)
		return ERR_NOMEM;
	for (int u = 0; u < units; u++)
		b->units[u] = (struct unit_listing){
		        .gradient = -1, .rounded = -1, .gradient_last = -1, .ready = -1, .stale_since = -1};
	return 0;
}

/* Finds the first stage with a trained tensor. Inference does not need it. */
static int train_find(struct builder *b)
{
	while (b->train_stage < b->model->stage_count && !unit_map_stage_trains(b->p->map, b->train_stage))
		b->train_stage++;
	if (b->train_stage == b->model->stage_count)
		return b->p->policy.inference ? 0 : err_set(ERR_RANGE, "plan: no tensor trains");
	while (b->group_first[b->train_group + 1] <= b->train_stage)
		b->train_group++;
	return 0;
}

static int builder_open(struct builder *b, struct plan *p)
{
	int L = (int)p->map->model->config.L, rc;

	b->p = p;
	b->ring_last = -1;
	b->model = p->map->model;
	b->group_count = L + 2;
	rc = builder_alloc(b);
	if (rc)
		return rc;
	for (int s = b->model->stage_count - 1; s >= 0; s--) {
		const struct model_stage *stage = &b->model->stages[s];
		int g = stage->kind == STAGE_EMBED ? 0 : stage->kind == STAGE_HEAD ? L + 1 : stage->layer + 1;

		b->group_first[g] = s;
	}
	b->group_first[b->group_count] = b->model->stage_count;
	rc = train_find(b);
	return rc ? rc : visits_find(b);
}

static void builder_close(struct builder *b)
{
	mem_free(b->state.units);
	mem_free(b->state.batch);
	mem_free(b->state.batch_host);
	mem_free(b->state.loss_host);
	mem_free(b->group_first);
	mem_free(b->x);
	mem_free(b->spilled);
	mem_free(b->acts_kept);
	mem_free(b->dx);
	mem_free(b->units);
	intervals_free(b);
}

static int policy_check(const struct plan_policy *o, enum plan_kind kind)
{
	const enum dtype dtypes[] = {o->compute_dtype, o->gradient_dtype, o->reduce_dtype};

	if (o->micro_batches < 1 || o->max_tokens < 1 || o->max_targets < 1 || o->rope_positions < 1 ||
	        o->prefetch_units < 1 || o->cache.rows < 0 || o->head_rows < 0 || o->max_pairs < 0)
		return err_set(ERR_RANGE,
		        "plan: micro-batches, tokens, targets, positions and prefetch must be at least 1");
	for (int i = 0; i < 3; i++)
		if (!dtype_computes(dtypes[i]))
			return err_set(ERR_RANGE, "plan: dtype %s computes nothing", dtype_name(dtypes[i]));
	if ((unsigned)o->state >= ADAMW_STATE_COUNT)
		return err_set(ERR_RANGE, "plan: optimizer state %d", (int)o->state);
	if (o->inference && kind != PLAN_EVAL && kind != PLAN_LOGITS)
		return err_set(ERR_RANGE, "plan: inference has no updates");
	return 0;
}

int plan_build(
        struct plan **out, enum plan_kind kind, const struct unit_map *map, const struct plan_policy *policy)
{
	struct builder b = {0};
	struct plan *p;
	int rc = policy_check(policy, kind);

	if (rc)
		return rc;
	p = mem_alloc(1, sizeof(*p));
	if (!p)
		return ERR_NOMEM;
	p->kind = kind;
	p->map = map;
	p->policy = *policy;
	if (!policy->head_rows)
		p->policy.head_rows =
		        model_head_rows(map->model->config.V, device_facts_of(DEVICE_HOST)->piece);
	rc = builder_open(&b, p);
	if (!rc) {
		state_add(&b);
		plan_emit(&b);
		rc = plan_parts_check(p);
	}
	if (!rc && policy->discard)
		rc = plan_insert_discards(p);
	if (!rc)
		rc = plan_layout(p);
	if (!rc)
		rc = plan_order(p);
	builder_close(&b);
	if (rc) {
		plan_free(p);
		return rc;
	}
	*out = p;
	return 0;
}
