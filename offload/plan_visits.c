/* Lists the work of the visits of a pass: forward, head, backward, and what crosses between them. */
#include "model/blocks/balance.h"
#include "model/blocks/blocks.h"
#include "offload/plan_parts.h"

static int *slot(int *table, const struct builder *b, int group, int micro)
{
	return &table[group * b->p->policy.micro_batches + micro];
}

static int64_t stream_bytes(const struct builder *b)
{
	return b->p->policy.max_tokens * b->model->config.C * dtype_bytes(b->p->policy.compute_dtype);
}

/* The head does forward and backward in one visit. */
static int group_is_head(const struct builder *b, int g)
{
	return b->model->stages[b->model->groups[g].first_stage].kind == STAGE_HEAD;
}

static int64_t scratch_bytes(const struct builder *b, int g)
{
	const struct plan_policy *o = &b->p->policy;
	const struct batch_sizes most = {o->max_tokens, o->max_targets, o->max_documents};

	if (group_is_head(b, g) && b->p->kind != PLAN_LOGITS)
		return model_head_scratch_bytes(
		        b->model, objective_type(&o->objective)->head, o->compute_dtype, &most, o->head_rows);
	return model_scratch_bytes(
	        b->model, g, o->compute_dtype, o->max_tokens, o->max_targets, o->head_rows);
}

/* What a stage reads beside weights and its micro-batch's arrays: the stream before its group, the group's
 * activations, rotary positions. */
static void stage_args(struct builder *b, int g, int m)
{
	struct plan *p = b->p;

	if (g == 0)
		return;
	plan_add_arg(p, ARG_X, *slot(b->x, b, b->model->groups[g].first, m), ACCESS_READ);
	plan_add_arg(p, ARG_ACTS, b->acts[m], ACCESS_BOTH);
	plan_add_arg(p, ARG_KEPT, b->kept[m], ACCESS_BOTH);
	p->ops[p->op_count - 1].level = b->kept[m] >= 0 ? b->group_acts[g].level : ACTS_ALL;
	plan_add_arg(p, ARG_ROPE, b->state.rope, ACCESS_READ);
}

static int value_buffer(struct builder *b, enum buffer_kind kind, int value, int m, int64_t element_bytes)
{
	int64_t count = b->p->policy.max_tokens * b->model->values[value].columns;
	int n = device_buffer(b, kind, LAYOUT_STREAM, count * element_bytes, m);

	if (n >= 0)
		b->p->buffers[n].value = value;
	return n;
}

/* Adds the values that a stage makes or reads. What is made in forward stays until the maker's backward. It
 * is made once more, with the same bits, if that group recomputes. */
static void values_arg(struct builder *b, int s, int m)
{
	const struct model_stage *stage = &b->model->stages[s];
	int is_backward = b->p->ops[b->p->op_count - 1].kind == PLAN_OP_BACKWARD;

	for (int i = 0; i < stage->value_count; i++) {
		int v = stage->value[i], is_maker = b->model->values[v].maker == s;
		int *at = slot(b->value, b, v, m);

		if (is_maker && b->p->ops[b->p->op_count - 1].kind == PLAN_OP_FORWARD)
			*at = value_buffer(b, BUFFER_VALUES, v, m, dtype_bytes(b->p->policy.compute_dtype));
		plan_add_arg(b->p, ARG_VALUE, *at, is_maker && !is_backward ? ACCESS_WRITE : ACCESS_READ);
	}
}

/* Adds the gradients of these values: the first reader in backward writes the sum, the others add to it, and
 * the maker reads it. Without a maker's backward there is no sum. */
static void value_gradients_arg(struct builder *b, int s, int m)
{
	const struct model_stage *stage = &b->model->stages[s];

	for (int i = 0; i < stage->value_count; i++) {
		int v = stage->value[i], maker = b->model->values[v].maker;
		int *at = slot(b->value_grad, b, v, m), is_first = *at < 0;

		if (maker < b->train_stage)
			continue;
		if (is_first && maker != s)
			*at = value_buffer(b, BUFFER_VALUE_GRADIENTS, v, m, 4);
		plan_add_arg(b->p, ARG_VALUE_GRADIENT, *at,
		        maker == s ? ACCESS_READ
		        : is_first ? ACCESS_WRITE
		                   : ACCESS_BOTH);
	}
}

void row_norms_emit(struct builder *b, int v, int s)
{
	int64_t bytes = model_row_norms_bytes(b->model, s);

	if (!bytes || b->row_norms[s] >= 0)
		return;
	b->row_norms[s] = device_buffer(b, BUFFER_ROW_NORMS, LAYOUT_STREAM, bytes, -1);
	plan_add_op(b->p, PLAN_OP_ROW_NORMS, QUEUE_COMPUTE, -1, s, -1);
	weights_arg(b, v, s);
	plan_add_arg(b->p, ARG_ROW_NORMS, b->row_norms[s], ACCESS_WRITE);
}

void row_norms_arg(struct builder *b, int s)
{
	plan_add_arg(b->p, ARG_ROW_NORMS, b->row_norms[s], ACCESS_READ);
}

static int work_buffer(struct builder *b, enum buffer_kind kind, int64_t bytes, int micro)
{
	return bytes ? device_buffer(b, kind, LAYOUT_WORK, bytes, micro) : -1;
}

/* Layers of experts leave their part of the tally; the last one's is followed by the copy to the host. */
static void tally_write(struct builder *b, int s, int m)
{
	int layer = b->model->stages[s].tally;

	if (b->p->kind == PLAN_TRAIN && layer == 0)
		b->state.tally[m] =
		        device_buffer(b, BUFFER_TALLY, LAYOUT_STREAM, model_tally(b->model).bytes, m);
	if (b->p->kind == PLAN_TRAIN && layer >= 0)
		plan_add_arg(b->p, ARG_TALLY, b->state.tally[m], layer ? ACCESS_BOTH : ACCESS_WRITE);
}

static void tally_show(struct builder *b, int g, int m)
{
	struct plan *p = b->p;
	int last = b->model->tally_layers - 1, is_last = 0;

	for (int s = group_first(b, g); s < group_end(b, g) && p->kind == PLAN_TRAIN; s++)
		is_last |= last >= 0 && b->model->stages[s].tally == last;
	if (!is_last)
		return;
	plan_add_op(p, PLAN_OP_TALLY, QUEUE_D2H, -1, -1, m);
	plan_add_arg(p, ARG_SRC, b->state.tally[m], ACCESS_READ);
	plan_add_arg(p, ARG_DST, b->state.tally_host[m], ACCESS_WRITE);
	p->d2h_bytes += model_tally(b->model).bytes;
}

/* Forward of stages of one group, or their recomputation before backward. */
static void stages_forward(
        struct builder *b, int v, int m, enum plan_op_kind kind, int scratch, int first, int end)
{
	struct plan *p = b->p;
	int g = visit_group(b, v);

	for (int s = first; s < end; s++) {
		row_norms_emit(b, v, s);
		plan_add_op(p, kind, QUEUE_COMPUTE, -1, s, m);
		weights_arg(b, v, s);
		row_norms_arg(b, s);
		plan_add_arg(p, ARG_BATCH, b->state.batch[m], ACCESS_READ);
		stage_args(b, g, m);
		values_arg(b, s, m);
		if (p->kind == PLAN_LOGITS)
			plan_add_arg(p, ARG_CACHE, b->state.cache[s], ACCESS_BOTH);
		plan_add_arg(p, ARG_SCRATCH, scratch, ACCESS_BOTH);
		if (kind == PLAN_OP_FORWARD)
			tally_write(b, s, m);
		if (kind == PLAN_OP_FORWARD && model_writes_output(b->model, s))
			plan_add_arg(p, ARG_Y, *slot(b->x, b, g + 1, m), ACCESS_WRITE);
	}
}

/* ---- activations in host memory ---- */

static void acts_spill(struct builder *b, int g, int m)
{
	struct plan *p = b->p;
	int64_t bytes = b->group_acts[g].held_bytes;
	int stage, held = b->kept[m] >= 0 ? b->kept[m] : b->acts[m];

	if (!bytes || !b->group_acts[g].is_hosted)
		return;
	stage = plan_add_buffer(p, BUFFER_SPILLED_ACTIVATIONS, SPACE_STAGING, LAYOUT_STREAM, bytes);
	plan_add_op(p, PLAN_OP_SPILL, QUEUE_D2H, -1, group_first(b, g), m);
	plan_add_arg(p, ARG_SRC, held, ACCESS_READ);
	plan_add_arg(p, ARG_DST, stage, ACCESS_WRITE);
	p->d2h_bytes += bytes;
	*slot(b->acts_spilled, b, g, m) = stage;
	b->spilling = held;
}

static void acts_refill(struct builder *b, int v, int m)
{
	struct plan *p = b->p;
	int g = v < b->visit_count ? visit_group(b, v) : -1;
	int *kept = g < 0 ? NULL : slot(b->acts_kept, b, g, m);

	if (g < 0 || !visit_is_backward(b, v) || !b->group_acts[g].is_hosted || !b->group_acts[g].bytes ||
	        *kept >= 0)
		return;
	*kept = device_buffer(b, BUFFER_ACTIVATIONS, LAYOUT_WORK, b->group_acts[g].held_bytes, m);
	plan_add_op(p, PLAN_OP_REFILL, QUEUE_H2D, -1, group_first(b, g), m);
	plan_add_arg(p, ARG_SRC, *slot(b->acts_spilled, b, g, m), ACCESS_READ);
	plan_add_arg(p, ARG_DST, *kept, ACCESS_WRITE);
	p->h2d_bytes += b->group_acts[g].held_bytes;
}

/* Whether the visit is a backward that needs activations from the host. */
static int visit_refills(const struct builder *b, int v)
{
	return visit_is_backward(b, v) && b->group_acts[visit_group(b, v)].is_hosted;
}

/* Copies run beside work: as soon as those of one micro-batch's backward are there, the next ones follow, of
 * this visit or of the next that needs any. So two are on the device at once. */
static void acts_refills(struct builder *b, int v, int m, int m0, int m1)
{
	if (visit_refills(b, v))
		acts_refill(b, v, m);
	if (visit_refills(b, v) && m + 1 < m1) {
		acts_refill(b, v, m + 1);
		return;
	}
	for (v++; v < b->visit_count && !visit_refills(b, v);)
		v++;
	acts_refill(b, v, m0);
}

/* Room for a group's activations, or for those that it does not keep. */
static int acts_open(struct builder *b, int g, int m)
{
	return work_buffer(b, BUFFER_ACTIVATIONS, b->group_acts[g].bytes - b->group_acts[g].kept_bytes, m);
}

/* Groups that share activations get them at the first of their visits, for all micro-batches. */
static void visit_forward(struct builder *b, int v, int m, int scratch)
{
	int g = visit_group(b, v);
	const struct model_group *group = &b->model->groups[g];

	if (g == group->first) {
		b->kept[m] = work_buffer(b, BUFFER_ACTIVATIONS, b->group_acts[g].kept_bytes, m);
		b->acts[m] = acts_open(b, g, m);
	}
	if (g == group->first && b->group_acts[g].is_kept)
		*slot(b->acts_kept, b, g, m) = b->kept[m] >= 0 ? b->kept[m] : b->acts[m];
	if (g == group->last)
		*slot(b->x, b, g + 1, m) =
		        device_buffer(b, BUFFER_BLOCK_INPUTS, LAYOUT_STREAM, stream_bytes(b), m);
	stages_forward(b, v, m, PLAN_OP_FORWARD, scratch, group_first(b, g), group_end(b, g));
	rows_release(b, v, m);
	tally_show(b, g, m);
	acts_spill(b, g, m);
}

int visit_input(const struct builder *b, int group, int micro)
{
	return *slot(b->x, b, group, micro);
}

int visit_dx(struct builder *b, int micro)
{
	return device_buffer(b, BUFFER_INPUT_GRADIENTS, LAYOUT_STREAM, stream_bytes(b), micro);
}

static void visit_head(struct builder *b, int v, int m, int scratch)
{
	struct plan *p = b->p;
	int g = visit_group(b, v), s = group_first(b, g);
	int train = p->kind == PLAN_TRAIN, logits = p->kind == PLAN_LOGITS;
	int64_t loss_bytes = p->buffers[b->state.loss_host[m]].bytes;
	int loss = device_buffer(b, BUFFER_LOSS, LAYOUT_WORK, loss_bytes, m);

	if (train) {
		gradients_open(b, s);
		b->dx[m] = g > b->train_group ? visit_dx(b, m) : -1;
	}
	row_norms_emit(b, v, s);
	plan_add_op(p, logits ? PLAN_OP_LOGITS : PLAN_OP_HEAD, QUEUE_COMPUTE, -1, s, m);
	weights_arg(b, v, s);
	row_norms_arg(b, s);
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

/* Finds the activations that a group has kept, and makes those again that it has not. */
static void acts_return(struct builder *b, int v, int m, int scratch)
{
	int from = b->model->groups[visit_group(b, v)].first, held = *slot(b->acts_kept, b, from, m), first,
	    end;

	b->kept[m] = b->group_acts[from].kept_bytes ? held : -1;
	b->acts[m] = b->kept[m] >= 0 ? -1 : held;
	if (b->acts[m] >= 0 || !b->group_acts[from].bytes || !group_recomputes(b, v, &first, &end))
		return;
	b->acts[m] = acts_open(b, from, m);
	stages_forward(b, v, m, PLAN_OP_RECOMPUTE, scratch, first, end);
}

static void visit_backward(struct builder *b, int v, int m, int scratch)
{
	struct plan *p = b->p;
	int g = visit_group(b, v);

	if (g == b->model->groups[g].last)
		acts_return(b, v, m, scratch);
	for (int s = group_end(b, g) - 1; s >= group_first(b, g) && s >= b->train_stage; s--) {
		gradients_open(b, s);
		plan_add_op(p, PLAN_OP_BACKWARD, QUEUE_COMPUTE, -1, s, m);
		weights_arg(b, v, s);
		row_norms_arg(b, s);
		plan_add_arg(p, ARG_BATCH, b->state.batch[m], ACCESS_READ);
		stage_args(b, g, m);
		plan_add_arg(p, ARG_SCRATCH, scratch, ACCESS_BOTH);
		values_arg(b, s, m);
		value_gradients_arg(b, s, m);
		if (b->model->config.balance > 0 && b->model->stages[s].tally >= 0)
			plan_add_arg(p, ARG_TALLY, b->state.tally[m], ACCESS_READ);
		plan_add_arg(p, ARG_DX, b->dx[m], g ? ACCESS_BOTH : ACCESS_READ);
		gradients_arg(b, s);
		row_gradients_return(b, s, m);
	}
}

/* ---- offloaded block inputs ---- */

/* The last block's input stays, because its backward comes soon after its forward, with only the head
 * between. Of groups that share their input, the last one spills it, and refills it first. */
static int group_spills(const struct builder *b, int g)
{
	return b->p->kind == PLAN_TRAIN && b->p->policy.activations == ACTIVATION_OFFLOAD &&
	       b->model->groups[g].first > 0 && b->model->groups[g].first >= b->train_group &&
	       g < b->group_count - 2 && g == b->model->groups[g].last &&
	       (!b->group_acts[g].is_kept || b->group_acts[g].level);
}

static void spills_emit(struct builder *b, int g, int m)
{
	struct plan *p = b->p;
	int stage = plan_add_buffer(p, BUFFER_SPILLED_INPUTS, SPACE_STAGING, LAYOUT_STREAM, stream_bytes(b));

	plan_add_op(p, PLAN_OP_SPILL, QUEUE_D2H, -1, group_first(b, g), m);
	plan_add_arg(p, ARG_SRC, *slot(b->x, b, b->model->groups[g].first, m), ACCESS_READ);
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

			plan_add_op(p, PLAN_OP_REFILL, QUEUE_H2D, -1, group_first(b, g), m);
			plan_add_arg(p, ARG_SRC, *slot(b->spilled, b, g, m), ACCESS_READ);
			plan_add_arg(p, ARG_DST, back, ACCESS_WRITE);
			p->h2d_bytes += stream_bytes(b);
			*slot(b->x, b, b->model->groups[g].first, m) = back;
		}
	}
}

/* ---- the pass ---- */

static void visit_emit(struct builder *b, int v, int m0, int m1)
{
	int g = visit_group(b, v);
	int64_t bytes = scratch_bytes(b, g);
	int scratch, has_vectors = group_is_head(b, g) && b->p->kind != PLAN_LOGITS &&
	                           objective_type(&b->p->policy.objective)->vectors != NULL;

	fetches_emit(b, v, EMIT_BEFORE);
	refills_emit(b, v, m0, m1);
	scratch = work_buffer(b, BUFFER_SCRATCH, bytes, -1);
	if (has_vectors)
		visit_vectors(b, v, m0, m1, scratch);
	for (int m = m0; m < m1 && !has_vectors; m++) {
		/* Its bytes stay until the next spill: work runs beside the copy. */
		int spilling = b->spilling;

		rows_fetch(b, v, m, m0, m1);
		if (v >= b->group_count - 1)
			acts_refills(b, v, m, m0, m1);
		if (visit_is_backward(b, v))
			visit_backward(b, v, m, scratch);
		else if (group_is_head(b, g))
			visit_head(b, v, m, scratch);
		else
			visit_forward(b, v, m, scratch);
		if (!visit_is_backward(b, v) && group_spills(b, g))
			spills_emit(b, g, m);
		if (!visit_is_backward(b, v) && !group_is_head(b, g))
			plan_hold_buffer(b->p, spilling);
	}
	fetches_hold(b, v);
	fetches_emit(b, v, EMIT_AFTER);
}

void pass_emit(struct builder *b, int m0, int m1)
{
	struct plan *p = b->p;

	b->first_micro = m0;
	for (int i = 0; i < b->interval_count; i++)
		b->intervals[i].weight = -1;
	rows_pick(b, m0, m1);
	for (int m = m0; m < m1; m++) {
		b->state.batch[m] =
		        device_buffer(b, BUFFER_BATCH, LAYOUT_WORK, plan_batch_bytes(&p->policy), m);
		plan_add_op(p, PLAN_OP_LOAD, QUEUE_H2D, -1, -1, m);
		plan_add_arg(p, ARG_SRC, b->state.batch_host[m], ACCESS_READ);
		plan_add_arg(p, ARG_DST, b->state.batch[m], ACCESS_WRITE);
		p->h2d_bytes += plan_batch_bytes(&p->policy);
	}
	for (b->now = 0; b->now < b->visit_count && !plan_parts_check(p); b->now++) {
		int is_head_next = b->now + 1 >= b->group_count; /* gradients of this step begin */

		if (p->kind == PLAN_TRAIN && !p->policy.update_in_backward && is_head_next)
			plan_add_updates(p, &b->state, p->map->unit_count);
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
