/* The heads of q, k and v: their norms and rotary positions. */
#include "model/blocks/attention.h"

/* The heads of q, of k or of v, of all tokens. */
struct head_group {
	enum tensor_role norm;
	int64_t column; /* of what the norm gives */
	int64_t source; /* of what it reads */
	int64_t heads, head_stride, rstd;
};
enum { HEAD_Q, HEAD_K, HEAD_V, HEAD_GROUPS };

static void head_groups(const struct stage_call *call, struct head_group groups[HEAD_GROUPS])
{
	struct qkv_place place = qkv_place_of(call);
	const struct block_config *b = call->block;
	const struct attn_layout *l = layout(call);
	int64_t v_source = b->has[ROLE_K_W] && !b->has[ROLE_V_W] ? place.k : place.v;

	groups[HEAD_Q] =
	        (struct head_group){ROLE_Q_NORM_W, place.q, place.q, b->H, place.q_head_stride, l->q_rstd};
	groups[HEAD_K] =
	        (struct head_group){ROLE_K_NORM_W, place.k, place.k, b->KV, place.kv_head_stride, l->k_rstd};
	groups[HEAD_V] =
	        (struct head_group){ROLE_V_NORM_W, place.v, v_source, b->KV, place.kv_head_stride, l->v_rstd};
}

/* The groups that have norms: none, q, q and k, or all three. */
static int head_norm_count(const struct stage_call *call)
{
	if (!call_has(call, ROLE_Q_NORM_W))
		return 0;
	if (attn_reads_kv(call))
		return HEAD_K;
	return call_has(call, ROLE_V_NORM_W) ? HEAD_GROUPS : HEAD_V;
}

void attn_rotate(struct stage_call *call, dev_addr base, enum rope_direction direction)
{
	const struct model_config *c = call->c;
	int64_t positions = call->memory->rope_positions;
	struct head_group groups[HEAD_GROUPS];
	int64_t table[2];
	int count = attn_reads_kv(call) ? HEAD_K : HEAD_V, rope = call->block->rope;

	if (rope < 0)
		return;
	table[0] = model_rope_query_first(call->model, rope, positions);
	table[1] = model_rope_table_first(call->model, rope, positions);
	head_groups(call, groups);
	if (count == HEAD_V && groups[0].head_stride == call->block->D &&
	        groups[1].head_stride == call->block->D &&
	        table[0] == table[1]) { /* the heads of k follow those of q */
		groups[0].heads += groups[1].heads;
		count = 1;
	}
	for (int i = 0; i < count; i++)
		call_op(call, &(struct op){.kind = OP_ROPE,
		                      .rope = {.x = column_at(call, base,
		                                       groups[i].column + call->block->latent.own),
		                              .table = dev_at(call->memory->rope_table, 4 * table[i]),
		                              .position = call->batch->position,
		                              .tokens = call->tokens,
		                              .heads = groups[i].heads,
		                              .stride = qkv_place_of(call).stride,
		                              .head_stride = groups[i].head_stride,
		                              .rotary = c->rope[rope].rotary,
		                              .pairs = c->rope_pairs,
		                              .table_rows = model_rope_table_rows(call->model, positions),
		                              .direction = direction,
		                              .dtype = call->dtype}});
}

void attn_head_norms_forward(struct stage_call *call)
{
	int64_t stride = qkv_place_of(call).stride;
	int whole = call->c->qk_norm_whole;
	struct head_group groups[HEAD_GROUPS];

	head_groups(call, groups);
	for (int i = 0; i < head_norm_count(call); i++)
		call_op(call,
		        &(struct op){.kind = OP_RMSNORM,
		                .norm = {.y = column_at(
		                                 call, acts_at(call, layout(call)->qk), groups[i].column),
		                        .x = column_at(
		                                call, acts_at(call, layout(call)->qkv), groups[i].source),
		                        .weight = norm_weight_of(call, groups[i].norm,
		                                scratch_at(call, call->scratch.norm_zeros)),
		                        .rstd = acts_at(call, groups[i].rstd),
		                        .rows = call->tokens,
		                        .groups = whole ? 1 : groups[i].heads,
		                        .cols = whole ? groups[i].heads * call->block->D : call->block->D,
		                        .x_stride = stride,
		                        .y_stride = stride,
		                        .x_group_stride = groups[i].head_stride,
		                        .y_group_stride = groups[i].head_stride,
		                        .epsilon = call->c->norm_of[groups[i].norm].epsilon,
		                        .weight_offset = norm_offset_of(call, groups[i].norm),
		                        .dtype = call->dtype}});
}

void attn_head_norms_backward(struct stage_call *call, dev_addr dqkv)
{
	int64_t stride = qkv_place_of(call).stride;
	int whole = call->c->qk_norm_whole;
	struct head_group groups[HEAD_GROUPS];

	head_groups(call, groups);
	for (int i = 0; i < head_norm_count(call); i++)
		call_op(call,
		        &(struct op){.kind = OP_RMSNORM_GRAD,
		                .norm_grad = {.dx = column_at(call, dqkv, groups[i].source),
		                        .dweight = norm_grad_of(call, groups[i].norm,
		                                scratch_at(call, call->scratch.norm_sink)),
		                        .dy = column_at(call, dqkv, groups[i].column),
		                        .x = column_at(
		                                call, acts_at(call, layout(call)->qkv), groups[i].source),
		                        .weight = norm_weight_of(call, groups[i].norm,
		                                scratch_at(call, call->scratch.norm_zeros)),
		                        .rstd = acts_at(call, groups[i].rstd),
		                        .scratch = scratch_at(call, call->scratch.norm_partial),
		                        .rows = call->tokens,
		                        .groups = whole ? 1 : groups[i].heads,
		                        .cols = whole ? groups[i].heads * call->block->D : call->block->D,
		                        .x_stride = stride,
		                        .y_stride = stride,
		                        .x_group_stride = groups[i].head_stride,
		                        .y_group_stride = groups[i].head_stride,
		                        .weight_offset = norm_offset_of(call, groups[i].norm),
		                        .accumulate_dx = groups[i].source != groups[i].column,
		                        .dtype = call->dtype}});
}

/* What the clip reads, at `column` of a row: q and k behind their norms, v as it is projected. */
static dev_addr clip_source(const struct stage_call *call, int is_v, int64_t column)
{
	const struct attn_layout *l = layout(call);
	int is_normed = !is_v && call_has(call, ROLE_Q_NORM_W);

	return column_at(call, acts_at(call, is_normed ? l->qk : l->qkv), column);
}

/* q and k lie side by side, then v. */
void attn_clip(struct stage_call *call)
{
	struct qkv_place place = qkv_place_of(call);

	for (int is_v = 0; is_v < 2 && call->block->clip > 0; is_v++) {
		int64_t column = is_v ? place.v : place.q;

		call_op(call,
		        &(struct op){.kind = OP_CLAMP,
		                .clamp = {.y = column_at(call, acts_at(call, layout(call)->clipped), column),
		                        .x = clip_source(call, is_v, column),
		                        .rows = call->tokens,
		                        .cols = is_v ? place.stride - place.v : place.v - place.q,
		                        .y_stride = place.stride,
		                        .x_stride = place.stride,
		                        .limit = call->block->clip,
		                        .dtype = call->dtype}});
	}
}

void attn_clip_backward(struct stage_call *call, dev_addr dqkv)
{
	struct qkv_place place = qkv_place_of(call);

	for (int is_v = 0; is_v < 2 && call->block->clip > 0; is_v++) {
		int64_t column = is_v ? place.v : place.q;

		call_op(call, &(struct op){.kind = OP_CLAMP_GRAD,
		                      .clamp_grad = {.dx = column_at(call, dqkv, column),
		                              .x = clip_source(call, is_v, column),
		                              .rows = call->tokens,
		                              .cols = is_v ? place.stride - place.v : place.v - place.q,
		                              .dx_stride = place.stride,
		                              .x_stride = place.stride,
		                              .limit = call->block->clip,
		                              .dtype = call->dtype}});
	}
}
