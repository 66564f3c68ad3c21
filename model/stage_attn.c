#include "model/stage.h"

#include <stddef.h>

/* The projections from norm1's output into columns of qkv; at most three. */
struct projection {
	struct linear linear;
	int64_t column;
};

static int projections_of(const struct stage_run *run, struct projection *list)
{
	const struct model_config *c = run->c;
	struct qkv_place place = qkv_place_of(c);

	if (c->qkv != QKV_SEPARATE) {
		list[0] = (struct projection){
		        {ROLE_QKV_W, ROLE_QKV_B, place.stride, c->C, c->weight_in_out}, 0};
		return 1;
	}
	list[0] = (struct projection){{ROLE_Q_W, ROLE_Q_B, c->H * c->D, c->C, c->weight_in_out}, place.q};
	list[1] = (struct projection){{ROLE_K_W, ROLE_K_B, c->KV * c->D, c->C, c->weight_in_out}, place.k};
	list[2] = (struct projection){{ROLE_V_W, ROLE_V_B, c->KV * c->D, c->C, c->weight_in_out}, place.v};
	return 3;
}

static struct linear output_of(const struct stage_run *run)
{
	const struct model_config *c = run->c;

	return (struct linear){ROLE_O_W, ROLE_O_B, c->C, c->H * c->D, c->weight_in_out};
}

static struct rows rows_at(const struct stage_run *run, dev_addr base, int64_t stride)
{
	return (struct rows){base, run->tokens, stride};
}

/* Column of a [tokens, qkv stride] array. */
static dev_addr column_at(const struct stage_run *run, dev_addr base, int64_t column)
{
	return dev_at(base, column * run->element_bytes);
}

static struct norm_place norm1_of(const struct stage_run *run)
{
	return (struct norm_place){
	        ROLE_NORM1_W, ROLE_NORM1_B, acts_at(run, run->acts.rstd1), acts_at(run, run->acts.mean1)};
}

/* q or k of all tokens, head by head. */
struct head_group {
	enum tensor_role norm;
	int64_t column, heads, head_stride, rstd;
};

static void head_groups(const struct stage_run *run, struct head_group groups[2])
{
	struct qkv_place place = qkv_place_of(run->c);

	groups[0] =
	        (struct head_group){ROLE_Q_NORM_W, place.q, run->c->H, place.q_head_stride, run->acts.q_rstd};
	groups[1] = (struct head_group){
	        ROLE_K_NORM_W, place.k, run->c->KV, place.kv_head_stride, run->acts.k_rstd};
}

static void rotate(struct stage_run *run, dev_addr base, enum rope_direction direction)
{
	const struct model_config *c = run->c;
	struct head_group groups[2];
	int count = 2;

	if (!c->rope.rotary)
		return;
	head_groups(run, groups);
	if (c->qkv != QKV_FUSED_BY_HEAD) { /* the heads of k follow those of q */
		groups[0].heads += groups[1].heads;
		count = 1;
	}
	for (int i = 0; i < count; i++)
		run_op(run, &(struct op){.kind = OP_ROPE,
		                    .rope = {.x = column_at(run, base, groups[i].column),
		                            .table = run->memory->rope_table,
		                            .position = run->batch->position,
		                            .tokens = run->tokens,
		                            .heads = groups[i].heads,
		                            .stride = qkv_place_of(c).stride,
		                            .head_stride = groups[i].head_stride,
		                            .rotary = c->rope.rotary,
		                            .table_rows = run->memory->rope_positions,
		                            .direction = direction,
		                            .dtype = run->dtype}});
}

static void head_norms_forward(struct stage_run *run)
{
	int64_t stride = qkv_place_of(run->c).stride;
	struct head_group groups[2];

	head_groups(run, groups);
	for (int i = 0; i < 2; i++)
		run_op(run,
		        &(struct op){.kind = OP_RMSNORM,
		                .norm = {.y = column_at(run, acts_at(run, run->acts.qk), groups[i].column),
		                        .x = column_at(run, acts_at(run, run->acts.qkv), groups[i].column),
		                        .weight = weight_of(run, groups[i].norm),
		                        .rstd = acts_at(run, groups[i].rstd),
		                        .rows = run->tokens,
		                        .groups = groups[i].heads,
		                        .cols = run->c->D,
		                        .x_stride = stride,
		                        .y_stride = stride,
		                        .x_group_stride = groups[i].head_stride,
		                        .y_group_stride = groups[i].head_stride,
		                        .epsilon = run->c->norm_epsilon,
		                        .dtype = run->dtype}});
}

/* In place on dqkv. */
static void head_norms_backward(struct stage_run *run, dev_addr dqkv)
{
	int64_t stride = qkv_place_of(run->c).stride;
	struct head_group groups[2];

	head_groups(run, groups);
	for (int i = 0; i < 2; i++)
		run_op(run,
		        &(struct op){.kind = OP_RMSNORM_GRAD,
		                .norm_grad = {.dx = column_at(run, dqkv, groups[i].column),
		                        .dweight = grad_of(run, groups[i].norm),
		                        .dy = column_at(run, dqkv, groups[i].column),
		                        .x = column_at(run, acts_at(run, run->acts.qkv), groups[i].column),
		                        .weight = weight_of(run, groups[i].norm),
		                        .rstd = acts_at(run, groups[i].rstd),
		                        .scratch = scratch_at(run, run->scratch.norm_partial),
		                        .rows = run->tokens,
		                        .groups = groups[i].heads,
		                        .cols = run->c->D,
		                        .x_stride = stride,
		                        .y_stride = stride,
		                        .x_group_stride = groups[i].head_stride,
		                        .y_group_stride = groups[i].head_stride,
		                        .dtype = run->dtype}});
}

/* Where attention reads q and k: after their norms, if there are any. */
static dev_addr turned_at(const struct stage_run *run)
{
	return acts_at(run, run->c->qk_norm ? run->acts.qk : run->acts.qkv);
}

static double scale_of(const struct stage_run *run)
{
	double scale = run->c->attention_scale;

	return run->c->attention_scale_by_layer ? scale / (run->layer + 1) : scale;
}

static void attend(struct stage_run *run)
{
	const struct model_config *c = run->c;
	struct qkv_place place = qkv_place_of(c);

	run_op(run, &(struct op){.kind = OP_ATTENTION,
	                    .attention = {.out = acts_at(run, run->acts.mixed),
	                            .lse = acts_at(run, run->acts.lse),
	                            .q = column_at(run, turned_at(run), place.q),
	                            .k = column_at(run, turned_at(run), place.k),
	                            .v = column_at(run, acts_at(run, run->acts.qkv), place.v),
	                            .doc_start = run->batch->doc_start,
	                            .doc_end = run->batch->doc_end,
	                            .tokens = run->tokens,
	                            .documents = run->batch->documents,
	                            .document_tokens = run->memory->rope_positions,
	                            .heads = c->H,
	                            .kv_heads = c->KV,
	                            .head_dim = c->D,
	                            .window = c->window[run->layer],
	                            .qkv_stride = place.stride,
	                            .q_head_stride = place.q_head_stride,
	                            .kv_head_stride = place.kv_head_stride,
	                            .out_stride = c->H * c->D,
	                            .scale = scale_of(run),
	                            .dtype = run->dtype}});
}

static void attend_backward(struct stage_run *run, dev_addr dqkv, dev_addr dmixed)
{
	const struct model_config *c = run->c;
	struct qkv_place place = qkv_place_of(c);

	run_op(run, &(struct op){.kind = OP_ATTENTION_GRAD,
	                    .attention_grad = {.dq = column_at(run, dqkv, place.q),
	                            .dk = column_at(run, dqkv, place.k),
	                            .dv = column_at(run, dqkv, place.v),
	                            .dout = dmixed,
	                            .out = acts_at(run, run->acts.mixed),
	                            .lse = acts_at(run, run->acts.lse),
	                            .q = column_at(run, turned_at(run), place.q),
	                            .k = column_at(run, turned_at(run), place.k),
	                            .v = column_at(run, acts_at(run, run->acts.qkv), place.v),
	                            .doc_start = run->batch->doc_start,
	                            .doc_end = run->batch->doc_end,
	                            .scratch = scratch_at(run, run->scratch.attention),
	                            .tokens = run->tokens,
	                            .documents = run->batch->documents,
	                            .document_tokens = run->memory->rope_positions,
	                            .heads = c->H,
	                            .kv_heads = c->KV,
	                            .head_dim = c->D,
	                            .window = c->window[run->layer],
	                            .qkv_stride = place.stride,
	                            .q_head_stride = place.q_head_stride,
	                            .kv_head_stride = place.kv_head_stride,
	                            .out_stride = c->H * c->D,
	                            .scale = scale_of(run),
	                            .dtype = run->dtype}});
}

/* x -> middle = x + attention's projection. A parallel residual needs it for y only. */
void attn_forward(struct stage_run *run)
{
	const struct model_config *c = run->c;
	int64_t stride = qkv_place_of(c).stride;
	dev_addr norm1 = acts_at(run, run->acts.norm1), middle = acts_at(run, run->acts.middle);
	dev_addr qkv = acts_at(run, run->acts.qkv);
	struct norm_place norm = norm1_of(run);
	struct linear output = output_of(run);
	struct projection list[3];
	int count = projections_of(run, list);

	norm_forward(run, &norm, norm1, run->memory->x, run->tokens);
	for (int i = 0; i < count; i++)
		linear_forward(run, &list[i].linear,
		        rows_at(run, column_at(run, qkv, list[i].column), stride), run->dtype,
		        rows_at(run, norm1, c->C));
	if (c->qk_norm)
		head_norms_forward(run);
	rotate(run, turned_at(run), ROPE_FORWARD);
	attend(run);
	if (c->parallel_residual && run->memory->recompute)
		return;
	linear_forward(run, &output, rows_at(run, middle, c->C), run->dtype,
	        rows_at(run, acts_at(run, run->acts.mixed), c->H * c->D));
	run_add(run, middle, middle, run->memory->x, run->tokens * c->C);
}

/* Gradients of the projections' weights, and of norm1's output; where it stands. */
static dev_addr projections_backward(struct stage_run *run, dev_addr dqkv)
{
	const struct model_config *c = run->c;
	int64_t stride = qkv_place_of(c).stride;
	struct projection list[3];
	int count = projections_of(run, list), cast = run->dtype != DTYPE_F32;
	int sums = count > 1;
	dev_addr rounded = scratch_at(run, run->scratch.dnorm_cast),
	         wide = scratch_at(run, run->scratch.dnorm);
	dev_addr dnorm = cast && !sums ? rounded : wide;

	for (int i = 0; i < count; i++) {
		struct rows dy = rows_at(run, column_at(run, dqkv, list[i].column), stride);

		linear_backward_weight(
		        run, &list[i].linear, dy, rows_at(run, acts_at(run, run->acts.norm1), c->C));
		linear_backward_input(run, &list[i].linear, rows_at(run, dnorm, c->C),
		        sums ? DTYPE_F32 : run->dtype, i ? LINEAR_ADD : LINEAR_WRITE, dy);
	}
	if (!cast || !sums)
		return dnorm;
	run_cast(run, rounded, wide, run->tokens * c->C);
	return rounded;
}

void attn_backward(struct stage_run *run)
{
	const struct model_config *c = run->c;
	dev_addr dx = run->memory->dx, dmixed = scratch_at(run, run->scratch.dmixed);
	dev_addr dqkv = scratch_at(run, run->scratch.dqkv), dnorm;
	struct norm_place norm = norm1_of(run);
	struct linear output = output_of(run);
	struct rows dy = rows_at(run, dx, c->C);

	linear_backward_weight(run, &output, dy, rows_at(run, acts_at(run, run->acts.mixed), c->H * c->D));
	linear_backward_input(run, &output, rows_at(run, dmixed, c->H * c->D), run->dtype, LINEAR_WRITE, dy);
	attend_backward(run, dqkv, dmixed);
	rotate(run, dqkv, ROPE_BACKWARD);
	if (c->qk_norm)
		head_norms_backward(run, dqkv);
	dnorm = projections_backward(run, dqkv);
	norm_backward(run, &norm, dx, dnorm, run->memory->x, run->tokens, LINEAR_ADD,
	        scratch_at(run, run->scratch.norm_partial));
	if (c->parallel_residual)
		run_add(run, dx, dx, scratch_at(run, run->scratch.residual), run->tokens * c->C);
}
