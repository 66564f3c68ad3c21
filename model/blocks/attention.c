/* Forward and backward of attention: norm, projections, head norms, rotary positions, output. */
#include "model/blocks/block.h"

#include <stddef.h>

/* A projection from norm1's output into columns of qkv. */
struct projection {
	struct linear linear;
	int64_t column;
};

/* One product makes all of q, k and v if they are fused and lie as attention reads them. */
static int64_t projection_count(const struct model_config *c)
{
	if (!c->has[ROLE_QKV_W])
		return 3;
	return qkv_is_by_group(c) ? 2 * c->KV : 1;
}

/* The heads of q that share k and v, or these k and v, which are neighbours in both places. */
static struct projection group_projection(const struct stage_call *call, int64_t group, int is_kv)
{
	const struct model_config *c = call->c;
	struct qkv_place place = qkv_place_of(c);
	int64_t q_rows = c->H / c->KV * c->D, kv_rows = 2 * c->D, first = group * (q_rows + kv_rows);

	if (is_kv)
		return (struct projection){{ROLE_QKV_W, ROLE_QKV_B, kv_rows, c->C, 0, first + q_rows, 1},
		        place.k + group * kv_rows};
	return (struct projection){
	        {ROLE_QKV_W, ROLE_QKV_B, q_rows, c->C, 0, first, group > 0}, place.q + group * q_rows};
}

static struct projection projection_of(const struct stage_call *call, int64_t index)
{
	const struct model_config *c = call->c;
	struct qkv_place place = qkv_place_of(c);
	const struct projection list[3] = {
	        {{ROLE_Q_W, ROLE_Q_B, c->H * c->D, c->C, c->weight_in_out, 0, 0}, place.q},
	        {{ROLE_K_W, ROLE_K_B, c->KV * c->D, c->C, c->weight_in_out, 0, 0}, place.k},
	        {{ROLE_V_W, ROLE_V_B, c->KV * c->D, c->C, c->weight_in_out, 0, 0}, place.v}};

	if (!c->has[ROLE_QKV_W])
		return list[index];
	if (qkv_is_by_group(c))
		return group_projection(call, index / 2, (int)(index % 2));
	return (struct projection){{ROLE_QKV_W, ROLE_QKV_B, place.stride, c->C, c->weight_in_out, 0, 0}, 0};
}

static struct linear output_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;

	return (struct linear){ROLE_O_W, ROLE_O_B, c->C, c->H * c->D, c->weight_in_out, 0, 0};
}

static dev_addr column_at(const struct stage_call *call, dev_addr base, int64_t column)
{
	return dev_at(base, column * call->element_bytes);
}

static struct norm_place norm1_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_NORM1_W, ROLE_NORM1_B, acts_at(call, call->acts.rstd1),
	        acts_at(call, call->acts.mean1), scratch_at(call, call->scratch.norm_zeros)};
}

dev_addr norm1_output(const struct stage_call *call)
{
	return call->c->has[ROLE_NORM1_W] ? acts_at(call, call->acts.norm1) : call->memory->x;
}

static struct norm_place post_norm_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_POST_NORM1_W, ROLE_COUNT, acts_at(call, call->acts.post_rstd1),
	        DEV_NONE, scratch_at(call, call->scratch.norm_zeros)};
}

/* The heads of q or of k, of all tokens. */
struct head_group {
	enum tensor_role norm;
	int64_t column, heads, head_stride, rstd;
};

static void head_groups(const struct stage_call *call, struct head_group groups[2])
{
	struct qkv_place place = qkv_place_of(call->c);

	groups[0] = (struct head_group){
	        ROLE_Q_NORM_W, place.q, call->c->H, place.q_head_stride, call->acts.q_rstd};
	groups[1] = (struct head_group){
	        ROLE_K_NORM_W, place.k, call->c->KV, place.kv_head_stride, call->acts.k_rstd};
}

static void rotate(struct stage_call *call, dev_addr base, enum rope_direction direction)
{
	const struct model_config *c = call->c;
	int64_t positions = call->memory->rope_positions;
	struct head_group groups[2];
	int64_t table[2];
	int count = 2, rope = c->block[call->layer].rope;

	if (rope < 0)
		return;
	table[0] = model_rope_query_first(call->model, rope, positions);
	table[1] = model_rope_table_first(call->model, rope, positions);
	head_groups(call, groups);
	if (groups[1].head_stride == c->D && table[0] == table[1]) { /* the heads of k follow those of q */
		groups[0].heads += groups[1].heads;
		count = 1;
	}
	for (int i = 0; i < count; i++)
		call_op(call, &(struct op){.kind = OP_ROPE,
		                      .rope = {.x = column_at(call, base, groups[i].column),
		                              .table = dev_at(call->memory->rope_table, 4 * table[i]),
		                              .position = call->batch->position,
		                              .tokens = call->tokens,
		                              .heads = groups[i].heads,
		                              .stride = qkv_place_of(c).stride,
		                              .head_stride = groups[i].head_stride,
		                              .rotary = c->rope[rope].rotary,
		                              .pairs = c->rope_pairs,
		                              .table_rows = model_rope_table_rows(call->model, positions),
		                              .direction = direction,
		                              .dtype = call->dtype}});
}

static void head_norms_forward(struct stage_call *call)
{
	int64_t stride = qkv_place_of(call->c).stride;
	int whole = call->c->qk_norm_whole;
	struct head_group groups[2];

	head_groups(call, groups);
	for (int i = 0; i < 2; i++)
		call_op(call,
		        &(struct op){.kind = OP_RMSNORM,
		                .norm = {.y = column_at(call, acts_at(call, call->acts.qk), groups[i].column),
		                        .x = column_at(call, acts_at(call, call->acts.qkv), groups[i].column),
		                        .weight = norm_weight_of(call, groups[i].norm,
		                                scratch_at(call, call->scratch.norm_zeros)),
		                        .rstd = acts_at(call, groups[i].rstd),
		                        .rows = call->tokens,
		                        .groups = whole ? 1 : groups[i].heads,
		                        .cols = whole ? groups[i].heads * call->c->D : call->c->D,
		                        .x_stride = stride,
		                        .y_stride = stride,
		                        .x_group_stride = groups[i].head_stride,
		                        .y_group_stride = groups[i].head_stride,
		                        .epsilon = call->c->norm_epsilon,
		                        .weight_offset = call->c->norm_weight_offset,
		                        .dtype = call->dtype}});
}

/* Overwrites dqkv. */
static void head_norms_backward(struct stage_call *call, dev_addr dqkv)
{
	int64_t stride = qkv_place_of(call->c).stride;
	int whole = call->c->qk_norm_whole;
	struct head_group groups[2];

	head_groups(call, groups);
	for (int i = 0; i < 2; i++)
		call_op(call,
		        &(struct op){.kind = OP_RMSNORM_GRAD,
		                .norm_grad = {.dx = column_at(call, dqkv, groups[i].column),
		                        .dweight = norm_grad_of(call, groups[i].norm,
		                                scratch_at(call, call->scratch.norm_sink)),
		                        .dy = column_at(call, dqkv, groups[i].column),
		                        .x = column_at(call, acts_at(call, call->acts.qkv), groups[i].column),
		                        .weight = norm_weight_of(call, groups[i].norm,
		                                scratch_at(call, call->scratch.norm_zeros)),
		                        .rstd = acts_at(call, groups[i].rstd),
		                        .scratch = scratch_at(call, call->scratch.norm_partial),
		                        .rows = call->tokens,
		                        .groups = whole ? 1 : groups[i].heads,
		                        .cols = whole ? groups[i].heads * call->c->D : call->c->D,
		                        .x_stride = stride,
		                        .y_stride = stride,
		                        .x_group_stride = groups[i].head_stride,
		                        .y_group_stride = groups[i].head_stride,
		                        .weight_offset = call->c->norm_weight_offset,
		                        .dtype = call->dtype}});
}

/* The q and k that attention reads: rotated, and after their norms if there are any. */
static dev_addr turned_at(const struct stage_call *call)
{
	return acts_at(call, call->c->has[ROLE_Q_NORM_W] ? call->acts.qk : call->acts.qkv);
}

static double scale_of(const struct stage_call *call)
{
	double scale = call->c->attention_scale;

	return call->c->attention_scale_by_layer ? scale / (call->layer + 1) : scale;
}

/* Operands and shapes that attention and its gradient share; both ops give them the same names. */
#define ATTENTION_ARGUMENTS(call, c, place)                                                                  \
	.out = acts_at(call, (call)->acts.mixed), .lse = acts_at(call, (call)->acts.lse),                    \
	.q = column_at(call, turned_at(call), (place).q), .k = column_at(call, turned_at(call), (place).k),  \
	.v = column_at(call, acts_at(call, (call)->acts.qkv), (place).v),                                    \
	.doc_start = (call)->batch->doc_start, .doc_end = (call)->batch->doc_end, .tokens = (call)->tokens,  \
	.documents = (call)->batch->documents, .document_tokens = (call)->memory->rope_positions,            \
	.heads = (c)->H, .kv_heads = (c)->KV, .head_dim = (c)->D,                                            \
	.window = (c)->block[(call)->layer].window, .mask = (c)->block[(call)->layer].mask,                  \
	.score_cap = (c)->block[(call)->layer].score_cap, .qkv_stride = (place).stride,                      \
	.q_head_stride = (place).q_head_stride, .kv_head_stride = (place).kv_head_stride,                    \
	.out_stride = (c)->H * (c)->D, .scale = scale_of(call), .dtype = (call)->dtype

static void attend(struct stage_call *call)
{
	const struct model_config *c = call->c;
	struct qkv_place place = qkv_place_of(c);

	call_op(call, &(struct op){.kind = OP_ATTENTION, .attention = {ATTENTION_ARGUMENTS(call, c, place)}});
}

static void attend_cached(struct stage_call *call)
{
	const struct model_config *c = call->c;
	const struct cache_shape *cached = &call->memory->cached;
	struct qkv_place place = qkv_place_of(c);

	call_op(call, &(struct op){.kind = OP_ATTENTION_CACHED,
	                      .attention_cached = {.out = acts_at(call, call->acts.mixed),
	                              .cache = call->memory->cache,
	                              .q = column_at(call, turned_at(call), place.q),
	                              .k = column_at(call, turned_at(call), place.k),
	                              .v = column_at(call, acts_at(call, call->acts.qkv), place.v),
	                              .doc_start = call->batch->doc_start,
	                              .doc_end = call->batch->doc_end,
	                              .tokens = call->tokens,
	                              .cache_rows = model_cache_rows(call->model, call->layer, cached),
	                              .text_rows = cached->text_rows,
	                              .kept_rows = model_cache_kept(call->model, call->layer, cached),
	                              .heads = c->H,
	                              .kv_heads = c->KV,
	                              .head_dim = c->D,
	                              .window = c->block[call->layer].window,
	                              .score_cap = c->block[call->layer].score_cap,
	                              .qkv_stride = place.stride,
	                              .q_head_stride = place.q_head_stride,
	                              .kv_head_stride = place.kv_head_stride,
	                              .out_stride = c->H * c->D,
	                              .scale = scale_of(call),
	                              .dtype = call->dtype}});
}

static void attend_backward(struct stage_call *call, dev_addr dqkv, dev_addr dmixed)
{
	const struct model_config *c = call->c;
	struct qkv_place place = qkv_place_of(c);

	call_op(call, &(struct op){.kind = OP_ATTENTION_GRAD,
	                      .attention_grad = {.dq = column_at(call, dqkv, place.q),
	                              .dk = column_at(call, dqkv, place.k),
	                              .dv = column_at(call, dqkv, place.v),
	                              .dout = dmixed,
	                              .scratch = scratch_at(call, call->scratch.attention),
	                              ATTENTION_ARGUMENTS(call, c, place)}});
}

/* middle = x + attention's projection. With a parallel residual only y needs it, so recomputation skips
 * it. */
void attn_forward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	int64_t stride = qkv_place_of(c).stride;
	dev_addr input = norm1_output(call), middle = acts_at(call, call->acts.middle);
	dev_addr qkv = acts_at(call, call->acts.qkv), branch = middle;
	struct norm_place norm = norm1_of(call), post = post_norm_of(call);
	struct linear output = output_of(call);

	if (c->has[ROLE_NORM1_W])
		norm_forward(call, &norm, input, call->memory->x, call->tokens);
	for (int64_t i = 0; i < projection_count(c); i++) {
		struct projection p = projection_of(call, i);

		linear_forward(call, &p.linear, rows_at(call, column_at(call, qkv, p.column), stride),
		        call->dtype, rows_at(call, input, c->C));
	}
	if (c->has[ROLE_Q_NORM_W] && !c->qk_norm_after_rope)
		head_norms_forward(call);
	rotate(call, c->qk_norm_after_rope ? qkv : turned_at(call), ROPE_FORWARD);
	if (c->has[ROLE_Q_NORM_W] && c->qk_norm_after_rope)
		head_norms_forward(call);
	if (dev_is_none(call->memory->cache))
		attend(call);
	else
		attend_cached(call);
	if (c->has[post.weight])
		branch = acts_at(call, call->acts.branch1);
	else if (c->parallel_residual && call->memory->recompute)
		return;
	linear_forward(call, &output, rows_at(call, branch, c->C), call->dtype,
	        rows_at(call, acts_at(call, call->acts.mixed), c->H * c->D));
	if (c->has[post.weight])
		norm_forward(call, &post, middle, branch, call->tokens);
	if (c->residual_scale != 0)
		call_scale(call, middle, middle, call->tokens * c->C, c->residual_scale);
	call_add(call, middle, middle, call->memory->x, call->tokens * c->C);
}

/* Computes the gradients of the projections' weights and of norm1's output. Returns the address of the
 * latter. */
static dev_addr projections_backward(struct stage_call *call, dev_addr dqkv)
{
	const struct model_config *c = call->c;
	int64_t stride = qkv_place_of(c).stride, count = projection_count(c);
	int cast = call->dtype != DTYPE_F32, sums = count > 1;
	dev_addr rounded = scratch_at(call, call->scratch.dnorm_cast),
	         wide = scratch_at(call, call->scratch.dnorm);
	dev_addr dnorm = cast && !sums ? rounded : wide;

	for (int64_t i = 0; i < count; i++) {
		struct projection p = projection_of(call, i);
		struct rows dy = rows_at(call, column_at(call, dqkv, p.column), stride);

		linear_backward_weight(call, &p.linear, dy, rows_at(call, norm1_output(call), c->C));
		linear_backward_input(call, &p.linear, rows_at(call, dnorm, c->C),
		        sums ? DTYPE_F32 : call->dtype, i ? LINEAR_ADD : LINEAR_WRITE, dy);
	}
	if (!cast || !sums)
		return dnorm;
	call_cast(call, rounded, wide, call->tokens * c->C);
	return rounded;
}

void attn_backward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	int64_t count = call->tokens * c->C;
	dev_addr dx = call->memory->dx, dmixed = scratch_at(call, call->scratch.dmixed);
	dev_addr dqkv = scratch_at(call, call->scratch.dqkv), dnorm;
	dev_addr residual = scratch_at(call, call->scratch.residual);
	struct norm_place norm = norm1_of(call), post = post_norm_of(call);
	struct linear output = output_of(call);
	struct rows dy = rows_at(call, branch_gradient(call, &post, acts_at(call, call->acts.branch1)), c->C);

	linear_backward_weight(
	        call, &output, dy, rows_at(call, acts_at(call, call->acts.mixed), c->H * c->D));
	linear_backward_input(
	        call, &output, rows_at(call, dmixed, c->H * c->D), call->dtype, LINEAR_WRITE, dy);
	attend_backward(call, dqkv, dmixed);
	if (c->has[ROLE_Q_NORM_W] && c->qk_norm_after_rope)
		head_norms_backward(call, dqkv);
	rotate(call, dqkv, ROPE_BACKWARD);
	if (c->has[ROLE_Q_NORM_W] && !c->qk_norm_after_rope)
		head_norms_backward(call, dqkv);
	dnorm = projections_backward(call, dqkv);
	if (c->parallel_residual && !c->has[ROLE_NORM2_W])
		call_add(call, dnorm, dnorm, residual, count);
	if (c->has[ROLE_NORM1_W])
		norm_backward(call, &norm, dx, dnorm, call->memory->x, call->tokens, LINEAR_ADD,
		        scratch_at(call, call->scratch.norm_partial),
		        scratch_at(call, call->scratch.norm_sink));
	else
		call_add(call, dx, dx, dnorm, count);
	if (c->parallel_residual && c->has[ROLE_NORM2_W])
		call_add(call, dx, dx, residual, count);
}
