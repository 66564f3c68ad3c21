/* Forward and backward of attention: norm, projections, head norms, rotary positions, output. */
#include "model/blocks/attention.h"

#include "base/size.h"

static struct attn_layout layout_of(const struct stage_call *call)
{
	const struct block_config *b = call->block;
	int64_t e = call->element_bytes, tokens = call->tokens, C = call->c->C, end = 0;
	int64_t stride = qkv_place_of(call).stride, heads_norm = b->has[ROLE_Q_NORM_W] ? tokens : 0;
	int64_t post = b->has[ROLE_POST_NORM1_W] ? tokens : 0;
	struct attn_layout l = {0};

	l.mixed = layout_take(&end, tokens * b->H * b->D, e);
	l.lse = layout_take(&end, tokens * b->H, 4);
	l.kept[ACTS_MIXED] = end;
	l.qkv = layout_take(&end, tokens * stride, e);
	latent_layout(call, &end, &l);
	l.kept[ACTS_PROJECTED] = end;
	l.branch = layout_take(&end, post * C, e);
	l.kept[ACTS_PRODUCTS] = end;
	l.rstd = layout_take(&end, tokens, 4);
	l.mean = layout_take(&end, call->c->norm == NORM_LAYER ? tokens : 0, 4);
	l.norm = layout_take(&end, b->has[ROLE_NORM1_W] ? tokens * C : 0, e);
	l.qk = layout_take(&end, heads_norm * stride, e);
	l.clipped = layout_take(&end, b->clip > 0 ? tokens * stride : 0, e);
	l.q_rstd = layout_take(&end, heads_norm * b->H, 4);
	l.k_rstd = layout_take(&end, heads_norm * b->KV, 4);
	l.v_rstd = layout_take(&end, b->has[ROLE_V_NORM_W] ? tokens * b->KV : 0, 4);
	l.post_rstd = layout_take(&end, post, 4);
	l.post_mean = layout_take(&end, call->c->norm == NORM_LAYER ? post : 0, 4);
	l.bytes = end;
	return l;
}

static int64_t acts_bytes(const struct stage_call *call)
{
	return layout_of(call).bytes;
}

static int64_t kept_bytes(const struct stage_call *call, enum acts_level level)
{
	return layout_of(call).kept[level];
}

/* Backward does not read a parallel stream; one behind a norm is cheap to make again. */
static int keeps_stream(const struct stage_call *call)
{
	return !call->c->parallel_residual && !call_has(call, ROLE_POST_NORM1_W);
}

/* Backward's own scratch. */
struct attn_scratch {
	int64_t dmixed;    /* [tokens, H D]; in forward too: attention's output behind its gate */
	int64_t dqkv;      /* [tokens, stride] */
	int64_t attention; /* F32, scratch of the attention gradient */
	int64_t dsink;     /* F32 [H], never read: the gradient of frozen SINKS */
	struct latent_scratch latent;
	int64_t bytes;
};

static struct attn_scratch scratch_of(const struct stage_call *call)
{
	const struct block_config *b = call->block;
	int64_t e = call->element_bytes, end = 0;
	struct attn_scratch s;

	s.dmixed = layout_take(&end, call->tokens * b->H * b->D, e);
	s.dqkv = layout_take(&end, call->tokens * qkv_place_of(call).stride, e);
	s.attention = layout_take(&end,
	        attention_scratch_count(call->tokens, b->H, b->D) +
	                (b->has_bias ? attention_bias_scratch_count(call->tokens, b->H) : 0),
	        4);
	s.dsink = layout_take(&end, call_has_frozen(call, ROLE_SINKS) ? b->H : 0, 4);
	s.latent = latent_scratch_of(call, &end);
	s.bytes = end;
	return s;
}

static int64_t scratch_bytes(const struct stage_call *call)
{
	return scratch_of(call).bytes;
}

/* ---- projections ---- */

/* A projection from norm1's output into columns of qkv. */
struct projection {
	struct linear linear;
	int64_t column;
};

/* Whether one product makes q, k and v of three matrices. Their columns of qkv lie side by side. */
static int is_joined(const struct stage_call *call)
{
	return model_joins(call->model, call->layer, JOIN_QKV);
}

static struct joined joined_of(const struct stage_call *call)
{
	int64_t kv = call->block->KV * call->block->D;

	return (struct joined){JOIN_QKV, call->c->C, {call->block->H * query_dim(call), kv, kv}};
}

/* One product makes all of q, k and v if they are joined, or fused and lie as attention reads them. Without
 * V_W, K_W's product is for both. The gate is last. */
static int64_t projection_count(const struct stage_call *call)
{
	int64_t fused = qkv_is_by_group(call) ? 2 * call->block->KV : 1,
	        apart = is_joined(call) ? 1 : 1 + call_has(call, ROLE_K_W) + call_has(call, ROLE_V_W);

	if (call_has(call, ROLE_KV_B_W))
		return 2;
	return (call_has(call, ROLE_QKV_W) ? fused : apart) + call_has(call, ROLE_ATTN_GATE_W);
}

/* Adapters of joined matrices add to the sum, too. */
int attn_sums_gradients(const struct stage_call *call)
{
	return projection_count(call) > 1 || (is_joined(call) && joined_has_adapter(call, JOIN_QKV));
}

/* The heads of q that share k and v, or these k and v, which are neighbours in both places. */
static struct projection group_projection(const struct stage_call *call, int64_t group, int is_kv)
{
	const struct model_config *c = call->c;
	struct qkv_place place = qkv_place_of(call);
	int64_t q_rows = call->block->H / call->block->KV * call->block->D, kv_rows = 2 * call->block->D,
	        first = group * (q_rows + kv_rows);

	if (is_kv)
		return (struct projection){{ROLE_QKV_W, ROLE_QKV_B, kv_rows, c->C, 0, first + q_rows, 1},
		        place.k + group * kv_rows};
	return (struct projection){
	        {ROLE_QKV_W, ROLE_QKV_B, q_rows, c->C, 0, first, group > 0}, place.q + group * q_rows};
}

static struct projection projection_of(const struct stage_call *call, int64_t index)
{
	const struct model_config *c = call->c;
	struct qkv_place place = qkv_place_of(call);
	const struct projection list[3] = {
	        {{ROLE_Q_W, ROLE_Q_B, call->block->H * query_dim(call), c->C, c->weight_in_out, 0, 0},
	                place.q},
	        {{ROLE_K_W, ROLE_K_B, call->block->KV * call->block->D, c->C, c->weight_in_out, 0, 0},
	                place.k},
	        {{ROLE_V_W, ROLE_V_B, call->block->KV * call->block->D, c->C, c->weight_in_out, 0, 0},
	                place.v}};

	if (call_has(call, ROLE_ATTN_GATE_W) && index == projection_count(call) - 1)
		return (struct projection){{ROLE_ATTN_GATE_W, ROLE_COUNT, call->block->H * call->block->D,
		                                   c->C, c->weight_in_out, 0, 0},
		        place.gate};
	if (!call_has(call, ROLE_QKV_W))
		return list[index];
	if (qkv_is_by_group(call))
		return group_projection(call, index / 2, (int)(index % 2));
	return (struct projection){
	        {ROLE_QKV_W, ROLE_QKV_B, (call->block->H + 2 * call->block->KV) * call->block->D, c->C,
	                c->weight_in_out, 0, 0},
	        0};
}

/* Columns of a token that the output's product reads. */
static int64_t output_columns(const struct stage_call *call)
{
	const struct block_config *b = call->block;

	return b->H * (b->latent.kv_rank ? b->latent.value : b->D);
}

static struct linear output_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;

	return (struct linear){ROLE_O_W, ROLE_O_B, c->C, output_columns(call), c->weight_in_out, 0, 0};
}

static struct norm_place norm1_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_NORM1_W, ROLE_NORM1_B, acts_at(call, layout(call)->rstd),
	        acts_at(call, layout(call)->mean), scratch_at(call, call->scratch.norm_zeros)};
}

dev_addr attn_input(const struct stage_call *call)
{
	struct stage_call attn = call_beside(call, STAGE_ATTN);

	return call_has(call, ROLE_NORM1_W) ? acts_at(&attn, layout_of(&attn).norm) : stream_in(&attn);
}

static struct norm_place post_norm_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_POST_NORM1_W, ROLE_POST_NORM1_B,
	        acts_at(call, layout(call)->post_rstd), acts_at(call, layout(call)->post_mean),
	        scratch_at(call, call->scratch.norm_zeros)};
}

/* The q and k that attention reads: rotated, and after their norms if there are any. */
static dev_addr turned_at(const struct stage_call *call)
{
	if (call->block->clip > 0)
		return acts_at(call, layout(call)->clipped);
	return acts_at(call, call_has(call, ROLE_Q_NORM_W) ? layout(call)->qk : layout(call)->qkv);
}

/* The bias by distance, the last of the values that the stage reads; NULL: there is none. */
static const struct stage_value *bias_of(const struct stage_call *call)
{
	int count = call->model->stages[call->stage].value_count;

	return call->block->has_bias ? value_of(call, count - 1) : NULL;
}

/* The number of values for keys and values that the stage makes or reads. */
static int kv_value_count(const struct stage_call *call)
{
	return call->model->stages[call->stage].value_count - call->block->has_bias;
}

static dev_addr v_at(const struct stage_call *call)
{
	dev_addr base = call->block->clip > 0           ? turned_at(call)
	                : call_has(call, ROLE_V_NORM_W) ? acts_at(call, layout(call)->qk)
	                : attn_reads_kv(call)           ? turned_at(call)
	                                                : acts_at(call, layout(call)->qkv);

	return column_at(call, base, qkv_place_of(call).v);
}

static double scale_of(const struct stage_call *call)
{
	return call->block->attention_scale;
}

/* Operands and shapes that attention and its gradient share; both ops give them the same names. */
#define ATTENTION_ARGUMENTS(call, place)                                                                     \
	.out = acts_at(call, layout(call)->mixed), .lse = acts_at(call, layout(call)->lse),                  \
	.q = column_at(call, turned_at(call), (place).q), .k = column_at(call, turned_at(call), (place).k),  \
	.v = v_at(call), .sink = weight_of(call, ROLE_SINKS),                                                \
	.bias = bias_of(call) ? bias_of(call)->at : DEV_NONE, .doc_start = (call)->batch->doc_start,         \
	.doc_end = (call)->batch->doc_end, .tokens = (call)->tokens, .documents = (call)->batch->documents,  \
	.document_tokens = (call)->memory->rope_positions, .heads = (call)->block->H,                        \
	.kv_heads = (call)->block->KV, .head_dim = (call)->block->D, .window = (call)->block->window,        \
	.mask = (call)->block->mask, .score_cap = (call)->block->score_cap, .qkv_stride = (place).stride,    \
	.q_head_stride = (place).q_head_stride, .kv_head_stride = (place).kv_head_stride,                    \
	.out_stride = (call)->block->H * (call)->block->D, .scale = scale_of(call), .dtype = (call)->dtype

static void attend(struct stage_call *call)
{
	struct qkv_place place = qkv_place_of(call);

	call_op(call, &(struct op){.kind = OP_ATTENTION, .attention = {ATTENTION_ARGUMENTS(call, place)}});
}

static void attend_cached(struct stage_call *call)
{
	const struct cache_shape *cached = &call->memory->cached;
	struct qkv_place place = qkv_place_of(call);

	call_op(call, &(struct op){.kind = OP_ATTENTION_CACHED,
	                      .attention_cached = {.out = acts_at(call, layout(call)->mixed),
	                              .cache = call->memory->state,
	                              .q = column_at(call, turned_at(call), place.q),
	                              .k = column_at(call, turned_at(call), place.k),
	                              .v = v_at(call),
	                              .sink = weight_of(call, ROLE_SINKS),
	                              .doc_start = call->batch->doc_start,
	                              .doc_end = call->batch->doc_end,
	                              .tokens = call->tokens,
	                              .cache_rows = attn_cache_rows(call, cached),
	                              .text_rows = cached->text_rows,
	                              .kept_rows = attn_cache_kept(call, cached),
	                              .heads = call->block->H,
	                              .kv_heads = call->block->KV,
	                              .head_dim = call->block->D,
	                              .window = call->block->window,
	                              .score_cap = call->block->score_cap,
	                              .qkv_stride = place.stride,
	                              .q_head_stride = place.q_head_stride,
	                              .kv_head_stride = place.kv_head_stride,
	                              .out_stride = call->block->H * call->block->D,
	                              .scale = scale_of(call),
	                              .dtype = call->dtype}});
}

static void attend_backward(struct stage_call *call, dev_addr dqkv, dev_addr dmixed)
{
	struct qkv_place place = qkv_place_of(call);
	const struct stage_value *bias = bias_of(call);

	if (bias && bias->writes_grad)
		call_op(call, &(struct op){.kind = OP_FILL,
		                      .fill = {bias->grad, 2 * call->tokens * call->block->H * 4, 0}});
	call_op(call, &(struct op){.kind = OP_ATTENTION_GRAD,
	                      .attention_grad = {.dbias = bias ? bias->grad : DEV_NONE,
	                              .dq = column_at(call, dqkv, place.q),
	                              .dk = column_at(call, dqkv, place.k),
	                              .dv = column_at(call, dqkv, place.v),
	                              .dsink = grad_or(
	                                      call, ROLE_SINKS, own_scratch_at(call, scratch_of(call).dsink)),
	                              .dout = dmixed,
	                              .scratch = own_scratch_at(call, scratch_of(call).attention),
	                              ATTENTION_ARGUMENTS(call, place)}});
}

static int has_gate(const struct stage_call *call)
{
	return call->block->attention_gate || call_has(call, ROLE_ATTN_GATE_W);
}

/* What the output's product reads: attention's output, that times the sigmoid of its gate, or of its columns
 * those of values. */
static dev_addr gated(struct stage_call *call)
{
	struct qkv_place place = qkv_place_of(call);
	dev_addr mixed = acts_at(call, layout(call)->mixed),
	         out = own_scratch_at(call, scratch_of(call).dmixed);
	int64_t width = call->block->H * call->block->D;

	if (output_columns(call) != width) {
		latent_narrow(call, out, mixed);
		return out;
	}
	if (!has_gate(call))
		return mixed;
	call_op(call, &(struct op){.kind = OP_GATE,
	                      .gate = {.y = out,
	                              .x = mixed,
	                              .gate = column_at(call, acts_at(call, layout(call)->qkv), place.gate),
	                              .rows = call->tokens,
	                              .groups = call->block->H,
	                              .cols = call->block->D,
	                              .x_stride = width,
	                              .y_stride = width,
	                              .gate_stride = place.stride,
	                              .gate_group_stride = place.gate_head_stride,
	                              .act = ACT_SIGMOID,
	                              .dtype = call->dtype}});
	return out;
}

/* From the gradient of gated's result computes that of attention's output, in its place, and the gate's. */
static void gated_backward(struct stage_call *call, dev_addr dqkv, dev_addr dmixed)
{
	struct qkv_place place = qkv_place_of(call);
	int64_t width = call->block->H * call->block->D;

	if (!has_gate(call))
		return;
	call_op(call, &(struct op){.kind = OP_GATE_GRAD,
	                      .gate_grad = {.dx = dmixed,
	                              .dgate = column_at(call, dqkv, place.gate),
	                              .dy = dmixed,
	                              .x = acts_at(call, layout(call)->mixed),
	                              .gate = column_at(call, acts_at(call, layout(call)->qkv), place.gate),
	                              .rows = call->tokens,
	                              .groups = call->block->H,
	                              .cols = call->block->D,
	                              .x_stride = width,
	                              .y_stride = width,
	                              .gate_stride = place.stride,
	                              .gate_group_stride = place.gate_head_stride,
	                              .act = ACT_SIGMOID,
	                              .dtype = call->dtype}});
}

/* Keys, then values, of heads that do not lie in groups: from this block to others, or from another. */
static void share_kv(struct stage_call *call)
{
	struct qkv_place place = qkv_place_of(call);
	int64_t width = call->block->KV * call->block->D;
	dev_addr own[2] = {column_at(call, turned_at(call), place.k), v_at(call)}, shared;

	for (int i = 0; i < 2 && kv_value_count(call); i++) {
		shared = column_at(call, value_of(call, 0)->at, i * width);
		if (attn_reads_kv(call))
			call_columns(call, own[i], place.stride, call->dtype, shared, 2 * width, call->dtype,
			        width, 0);
		else
			call_columns(call, shared, 2 * width, call->dtype, own[i], place.stride, call->dtype,
			        width, 0);
	}
}

/* A reader's gradients join the F32 sum, the maker's own ones get it. */
static void share_kv_backward(struct stage_call *call, dev_addr dqkv)
{
	struct qkv_place place = qkv_place_of(call);
	int64_t width = call->block->KV * call->block->D, column[2] = {place.k, place.v};

	for (int i = 0; i < 2 && kv_value_count(call) && !dev_is_none(value_of(call, 0)->grad); i++) {
		dev_addr sum = dev_at(value_of(call, 0)->grad, i * width * 4),
		         own = column_at(call, dqkv, column[i]);

		if (attn_reads_kv(call))
			call_columns(call, sum, 2 * width, DTYPE_F32, own, place.stride, call->dtype, width,
			        !value_of(call, 0)->writes_grad);
		else
			call_columns(
			        call, own, place.stride, call->dtype, sum, 2 * width, DTYPE_F32, width, 1);
	}
}

/* q, k and v, and the gate, from attention's input. */
static void project(struct stage_call *call, dev_addr qkv)
{
	struct latent_scratch latent = scratch_of(call).latent;
	struct joined joined = joined_of(call);

	if (call_has(call, ROLE_KV_B_W)) {
		latent_project(call, &latent, qkv);
		return;
	}
	for (int64_t i = 0; i < projection_count(call); i++) {
		struct projection p = projection_of(call, i);
		struct rows x = rows_at(call, attn_input(call), call->c->C),
		            y = rows_at(call, column_at(call, qkv, p.column), qkv_place_of(call).stride);

		if (!i && is_joined(call))
			joined_forward(call, &joined, y, x);
		else
			linear_forward(call, &p.linear, y, call->dtype, x);
	}
}

/* Head norms, clip and rotation of what is projected; kept rows of qkv have been turned. */
static void turn(struct stage_call *call, dev_addr qkv)
{
	const struct model_config *c = call->c;
	dev_addr turned = c->qk_norm_after_rope ? qkv : turned_at(call);

	if (call_has(call, ROLE_Q_NORM_W) && !c->qk_norm_after_rope)
		attn_head_norms_forward(call);
	attn_clip(call);
	if (turned.value != qkv.value || !acts_are_kept(call, layout(call)->qkv))
		attn_rotate(call, turned, ROPE_FORWARD);
	if (call_has(call, ROLE_Q_NORM_W) && c->qk_norm_after_rope)
		attn_head_norms_forward(call);
}

/* With a parallel residual nothing in backward needs the sum with attention's projection, so recomputation
 * skips it. */
static void forward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	dev_addr qkv = acts_at(call, layout(call)->qkv), branch;
	struct norm_place norm = norm1_of(call), post = post_norm_of(call);
	struct linear output = output_of(call);

	if (call_has(call, ROLE_NORM1_W))
		norm_forward(call, &norm, attn_input(call), stream_in(call), call->tokens);
	if (call->block->scales.attention_in != 0)
		call_scale(call, attn_input(call), attn_input(call), call->tokens * c->C,
		        call->block->scales.attention_in);
	if (!acts_are_kept(call, layout(call)->qkv))
		project(call, qkv);
	turn(call, qkv);
	share_kv(call);
	if (!dev_is_none(call->memory->state))
		attend_cached(call);
	else if (!acts_are_kept(call, layout(call)->mixed))
		attend(call);
	branch = branch_at(call, &post, acts_at(call, layout(call)->branch));
	if (dev_is_none(branch) ||
	        (c->parallel_residual && call->memory->recompute && !call_has(call, post.weight)))
		return;
	if (branch_is_kept(call, &post, layout(call)->branch)) {
		branch_end_again(call, &post, branch);
		return;
	}
	linear_forward(call, &output, rows_at(call, branch, c->C), call->dtype,
	        rows_at(call, gated(call), output_columns(call)));
	branch_end(call, &post, branch);
}

/* From the gradient of their results, those of the projections' weights and, in F32 if they are several, of
 * norm1's output. */
static void project_backward(struct stage_call *call, dev_addr dnorm, dev_addr dqkv)
{
	struct latent_scratch latent = scratch_of(call).latent;
	struct joined joined = joined_of(call);
	enum dtype dtype = attn_sums_gradients(call) ? DTYPE_F32 : call->dtype;
	struct rows x = rows_at(call, attn_input(call), call->c->C), dx = rows_at(call, dnorm, call->c->C);

	if (call_has(call, ROLE_KV_B_W)) {
		latent_project_backward(call, &latent, dnorm, dqkv);
		return;
	}
	for (int64_t i = 0; i < projection_count(call); i++) {
		struct projection p = projection_of(call, i);
		struct rows dy = rows_at(call, column_at(call, dqkv, p.column), qkv_place_of(call).stride);

		if (!i && is_joined(call)) {
			joined_backward(call, &joined, dx, dtype, dy, x);
			continue;
		}
		linear_backward_weight(call, &p.linear, dy, x);
		linear_backward_input(call, &p.linear, dx, dtype, i ? LINEAR_ADD : LINEAR_WRITE, dy);
	}
}

/* The same, and where norm1's gradient is then, in the compute dtype. */
static dev_addr projections_backward(struct stage_call *call, dev_addr dqkv)
{
	int cast = call->dtype != DTYPE_F32, sums = attn_sums_gradients(call);
	dev_addr rounded = scratch_at(call, call->scratch.dnorm_cast),
	         wide = scratch_at(call, call->scratch.dnorm);
	dev_addr dnorm = cast && !sums ? rounded : wide;

	project_backward(call, dnorm, dqkv);
	if (!cast || !sums)
		return dnorm;
	call_cast(call, rounded, wide, call->tokens * call->c->C);
	return rounded;
}

/* The gradient of attention's output, all columns of heads. */
static void output_backward(struct stage_call *call, dev_addr dmixed, struct rows dy)
{
	struct linear output = output_of(call);
	int is_narrow = output_columns(call) != call->block->H * call->block->D;
	dev_addr dout = is_narrow ? own_scratch_at(call, scratch_of(call).latent.heads) : dmixed;

	linear_backward_input(
	        call, &output, rows_at(call, dout, output_columns(call)), call->dtype, LINEAR_WRITE, dy);
	if (is_narrow)
		latent_widen(call, dmixed, dout);
}

static void backward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	int64_t count = call->tokens * c->C;
	dev_addr dx = call->memory->dx, dmixed = own_scratch_at(call, scratch_of(call).dmixed);
	dev_addr dqkv = own_scratch_at(call, scratch_of(call).dqkv), dnorm;
	dev_addr residual = scratch_at(call, call->scratch.residual);
	struct norm_place norm = norm1_of(call), post = post_norm_of(call);
	struct linear output = output_of(call);
	struct rows dy =
	        rows_at(call, branch_gradient(call, &post, acts_at(call, layout(call)->branch)), c->C);

	linear_backward_weight(call, &output, dy, rows_at(call, gated(call), output_columns(call)));
	output_backward(call, dmixed, dy);
	gated_backward(call, dqkv, dmixed);
	attend_backward(call, dqkv, dmixed);
	share_kv_backward(call, dqkv);
	if (call_has(call, ROLE_Q_NORM_W) && c->qk_norm_after_rope)
		attn_head_norms_backward(call, dqkv);
	attn_rotate(call, dqkv, ROPE_BACKWARD);
	attn_clip_backward(call, dqkv);
	if (call_has(call, ROLE_Q_NORM_W) && !c->qk_norm_after_rope)
		attn_head_norms_backward(call, dqkv);
	dnorm = projections_backward(call, dqkv);
	if ((c->parallel_residual && !call_has(call, ROLE_NORM2_W)) || scan_is_beside(call))
		call_add(call, dnorm, dnorm, residual, count);
	if (call->block->scales.attention_in != 0)
		call_scale(call, dnorm, dnorm, count, call->block->scales.attention_in);
	if (call_has(call, ROLE_NORM1_W))
		norm_backward(call, &norm, dx, dnorm, stream_in(call), call->tokens, LINEAR_ADD,
		        scratch_at(call, call->scratch.norm_partial),
		        scratch_at(call, call->scratch.norm_sink));
	else
		call_add(call, dx, dx, dnorm, count);
	if (c->parallel_residual && call_has(call, ROLE_NORM2_W))
		call_add(call, dx, dx, residual, count);
}

static void attn_forward(struct stage_call *call)
{
	const struct attn_layout l = layout_of(call);

	call->layout = &l;
	forward(call);
}

static void attn_backward(struct stage_call *call)
{
	const struct attn_layout l = layout_of(call);

	call->layout = &l;
	backward(call);
}

const struct stage_type stage_attn = {
        .forward = attn_forward,
        .backward = attn_backward,
        .writes_stream = 1,
        .acts_bytes = acts_bytes,
        .kept_bytes = kept_bytes,
        .keeps_stream = keeps_stream,
        .scratch_bytes = scratch_bytes,
        .state_bytes = attn_cache_bytes,
        .state_goes_back = attn_cache_goes_back,
};
