/* Forward and backward of a layer of the gated delta rule: norm, projections, a short convolution over q, k
 * and v, the rule, a norm with a gate, output. Its ops: device/op_recurrent.h. */
#include "model/blocks/block.h"

#include "base/size.h"

#include <math.h>

/* q and k of a head have length 1 before the rule; the squares of a vector are summed with this. */
static const double LENGTH_EPSILON = 1e-6;

/* What forward keeps. Backward overwrites conv with the gradient of mixed, and z with its own. */
struct delta_layout {
	int64_t rstd, mean; /* F32 [tokens] */
	int64_t norm;       /* [tokens, C] normalised x */
	int64_t mixed;      /* [tokens, W] all q, all k, all v as projected */
	int64_t conv;       /* [tokens, W] the same behind the convolution */
	int64_t z;          /* [tokens, heads value_dim] gate of the norm */
	int64_t b, a;       /* [tokens, heads] gates of the rule */
	int64_t out;        /* [tokens, heads value_dim] the rule's output */
	int64_t branch;     /* with POST_NORM1_W: [tokens, C] the projected output, before that norm */
	int64_t post_rstd;  /* F32 [tokens] */
	int64_t bytes;
};

static int64_t value_cols(const struct stage_call *call)
{
	return call->block->delta.value_heads * call->block->delta.value_dim;
}

static struct delta_layout layout_of(const struct stage_call *call)
{
	const struct block_config *b = call->block;
	int64_t e = call->element_bytes, tokens = call->tokens, C = call->c->C, end = 0;
	int64_t post = b->has[ROLE_POST_NORM1_W] ? tokens : 0;
	struct delta_layout l;

	l.rstd = layout_take(&end, tokens, 4);
	l.mean = layout_take(&end, call->c->norm == NORM_LAYER ? tokens : 0, 4);
	l.norm = layout_take(&end, b->has[ROLE_NORM1_W] ? tokens * C : 0, e);
	l.mixed = layout_take(&end, tokens * delta_qkv_cols(&b->delta), e);
	l.conv = layout_take(&end, tokens * delta_qkv_cols(&b->delta), e);
	l.z = layout_take(&end, tokens * value_cols(call), e);
	l.b = layout_take(&end, tokens * b->delta.value_heads, e);
	l.a = layout_take(&end, tokens * b->delta.value_heads, e);
	l.out = layout_take(&end, tokens * value_cols(call), e);
	l.branch = layout_take(&end, post * C, e);
	l.post_rstd = layout_take(&end, post, 4);
	l.bytes = end;
	return l;
}

static int64_t acts_bytes(const struct stage_call *call)
{
	return layout_of(call).bytes;
}

static const struct delta_layout *layout(const struct stage_call *call)
{
	return call->layout;
}

/* hidden is also needed in forward. The rule, the convolution and the norm use `work` one after the other. */
struct delta_scratch {
	int64_t hidden; /* [tokens, heads value_dim] the gated norm's output, then its gradient, then that
	                        of the rule's output */
	int64_t hidden_rstd; /* F32 [tokens, heads] */
	int64_t dconv;       /* [tokens, W] */
	int64_t db, da;      /* [tokens, heads] */
	int64_t work;        /* F32 */
	int64_t sink;        /* F32, gradients of frozen tensors that ops compute all the same */
	int64_t bytes;
};

static const enum tensor_role summed[] = {ROLE_CONV_W, ROLE_A_LOG, ROLE_DT_BIAS,
        ROLE_DELTA_NORM_W}; /* their ops need a place for the gradient */

/* Elements that a sink needs: of each op, all the tensors whose gradients it adds to. */
static int64_t sink_count(const struct stage_call *call)
{
	const struct block_config *b = call->block;
	int is_frozen = 0;

	for (size_t i = 0; i < sizeof(summed) / sizeof(*summed); i++)
		is_frozen |= call_has_frozen(call, summed[i]);
	return !is_frozen ? 0
	                  : max_i64(b->conv_cols * b->taps,
	                            max_i64(2 * b->delta.value_heads, b->delta.value_dim));
}

static struct delta_scratch scratch_of(const struct stage_call *call)
{
	const struct block_config *b = call->block;
	const struct delta_config *d = &b->delta;
	int64_t e = call->element_bytes, tokens = call->tokens, end = 0, work;
	struct delta_scratch s;

	work = max_i64(delta_scratch_count(tokens, d->value_heads, d->key_dim, d->value_dim),
	        max_i64(conv_scratch_count(tokens, b->conv_cols, b->taps),
	                gated_norm_scratch_count(tokens, d->value_heads, d->value_dim)));
	s.hidden = layout_take(&end, tokens * value_cols(call), e);
	s.hidden_rstd = layout_take(&end, tokens * d->value_heads, 4);
	s.dconv = layout_take(&end, tokens * delta_qkv_cols(d), e);
	s.db = layout_take(&end, tokens * d->value_heads, e);
	s.da = layout_take(&end, tokens * d->value_heads, e);
	s.work = layout_take(&end, work, 4);
	s.sink = layout_take(&end, sink_count(call), 4);
	s.bytes = end;
	return s;
}

static int64_t scratch_bytes(const struct stage_call *call)
{
	return scratch_of(call).bytes;
}

/* ---- generation ---- */

/* The state of each text, F32, then the window of each text's convolution. */
static int64_t states_bytes(const struct stage_call *call, const struct cache_shape *shape)
{
	const struct delta_config *d = &call->block->delta;
	int64_t end = 0;

	layout_take(&end, cache_texts(shape) * d->value_heads * d->key_dim * d->value_dim, 4);
	return end;
}

static int64_t state_bytes(const struct stage_call *call, const struct cache_shape *shape)
{
	int64_t end = states_bytes(call, shape);

	layout_take(&end, cache_texts(shape) * (call->block->taps - 1) * call->block->conv_cols,
	        call->element_bytes);
	return end;
}

static int state_goes_back(
        const struct stage_call *call, const struct cache_shape *shape, int64_t reached, int64_t at)
{
	(void)call;
	(void)shape;
	return at == reached;
}

/* ---- the parts ---- */

/* A projection from norm1's output, with its place in the activations. */
struct projection {
	struct linear linear;
	int64_t at;
};
enum { PROJECTIONS = 4 };

static struct projection projection_of(const struct stage_call *call, int i)
{
	const struct model_config *c = call->c;
	int64_t heads = call->block->delta.value_heads;
	const struct projection list[PROJECTIONS] = {
	        {{ROLE_DELTA_QKV_W, ROLE_COUNT, delta_qkv_cols(&call->block->delta), c->C, c->weight_in_out,
	                 0, 0},
	                layout(call)->mixed},
	        {{ROLE_DELTA_Z_W, ROLE_COUNT, value_cols(call), c->C, c->weight_in_out, 0, 0},
	                layout(call)->z},
	        {{ROLE_DELTA_B_W, ROLE_COUNT, heads, c->C, c->weight_in_out, 0, 0}, layout(call)->b},
	        {{ROLE_DELTA_A_W, ROLE_COUNT, heads, c->C, c->weight_in_out, 0, 0}, layout(call)->a}};

	return list[i];
}

static struct linear output_of(const struct stage_call *call)
{
	return (struct linear){
	        ROLE_DELTA_OUT_W, ROLE_COUNT, call->c->C, value_cols(call), call->c->weight_in_out, 0, 0};
}

static struct norm_place norm1_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_NORM1_W, ROLE_NORM1_B, acts_at(call, layout(call)->rstd),
	        acts_at(call, layout(call)->mean), scratch_at(call, call->scratch.norm_zeros)};
}

static struct norm_place post_norm_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_POST_NORM1_W, ROLE_COUNT, acts_at(call, layout(call)->post_rstd),
	        DEV_NONE, scratch_at(call, call->scratch.norm_zeros)};
}

static dev_addr input_of(const struct stage_call *call)
{
	return call_has(call, ROLE_NORM1_W) ? acts_at(call, layout(call)->norm) : stream_in(call);
}

/* Its gradient, or a place that nobody reads. */
static dev_addr grad_or_sink(const struct stage_call *call, enum tensor_role role, int64_t first)
{
	dev_addr grad = grad_of(call, role);

	return dev_is_none(grad) ? own_scratch_at(call, scratch_of(call).sink + 4 * first) : grad;
}

static dev_addr k_at(const struct stage_call *call, dev_addr qkv)
{
	const struct delta_config *d = &call->block->delta;

	return dev_at(qkv, d->key_heads * d->key_dim * call->element_bytes);
}

static dev_addr v_at(const struct stage_call *call, dev_addr qkv)
{
	const struct delta_config *d = &call->block->delta;

	return dev_at(qkv, 2 * d->key_heads * d->key_dim * call->element_bytes);
}

#define CONV_ARGUMENTS(call)                                                                                 \
	.x = acts_at(call, layout(call)->mixed), .weight = weight_of(call, ROLE_CONV_W), .bias = DEV_NONE,   \
	.doc_start = (call)->batch->doc_start, .tokens = (call)->tokens, .cols = (call)->block->conv_cols,   \
	.taps = (call)->block->taps, .x_stride = (call)->block->conv_cols,                                   \
	.y_stride = (call)->block->conv_cols, .act = CONV_SILU, .dtype = (call)->dtype

static void convolve(struct stage_call *call)
{
	dev_addr y = acts_at(call, layout(call)->conv), state = call->memory->state;
	const struct cache_shape *cached = &call->memory->cached;

	if (dev_is_none(state))
		call_op(call, &(struct op){.kind = OP_CONV, .conv = {CONV_ARGUMENTS(call), .y = y}});
	else
		call_op(call, &(struct op){.kind = OP_CONV_CACHED,
		                      .conv_cached = {CONV_ARGUMENTS(call), .y = y,
		                              .window = dev_at(state, states_bytes(call, cached)),
		                              .doc_end = call->batch->doc_end, .texts = cache_texts(cached),
		                              .text_rows = cache_text_rows(cached)}});
}

#define DELTA_ARGUMENTS(call, qkv)                                                                           \
	.q = (qkv), .k = k_at(call, qkv), .v = v_at(call, qkv), .a = acts_at(call, layout(call)->a),         \
	.b = acts_at(call, layout(call)->b), .decay = weight_of(call, ROLE_A_LOG),                           \
	.dt_bias = weight_of(call, ROLE_DT_BIAS), .doc_start = (call)->batch->doc_start,                     \
	.tokens = (call)->tokens, .key_heads = (call)->block->delta.key_heads,                               \
	.value_heads = (call)->block->delta.value_heads, .key_dim = (call)->block->delta.key_dim,            \
	.value_dim = (call)->block->delta.value_dim, .qkv_stride = (call)->block->conv_cols,                 \
	.gate_stride = (call)->block->delta.value_heads, .out_stride = value_cols(call),                     \
	.scale = 1 / sqrt((double)(call)->block->delta.key_dim), .epsilon = LENGTH_EPSILON,                  \
	.dtype = (call)->dtype

static void rule(struct stage_call *call)
{
	dev_addr qkv = acts_at(call, layout(call)->conv), out = acts_at(call, layout(call)->out);
	const struct cache_shape *cached = &call->memory->cached;

	if (dev_is_none(call->memory->state))
		call_op(call,
		        &(struct op){.kind = OP_DELTA, .delta = {DELTA_ARGUMENTS(call, qkv), .out = out}});
	else
		call_op(call,
		        &(struct op){.kind = OP_DELTA_CACHED,
		                .delta_cached = {DELTA_ARGUMENTS(call, qkv), .out = out,
		                        .state = call->memory->state, .doc_end = call->batch->doc_end,
		                        .texts = cache_texts(cached), .text_rows = cache_text_rows(cached)}});
}

static void rule_backward(struct stage_call *call, dev_addr dout)
{
	dev_addr qkv = acts_at(call, layout(call)->conv), dqkv = own_scratch_at(call, scratch_of(call).dconv);

	call_op(call,
	        &(struct op){.kind = OP_DELTA_GRAD,
	                .delta_grad = {DELTA_ARGUMENTS(call, qkv), .dq = dqkv, .dk = k_at(call, dqkv),
	                        .dv = v_at(call, dqkv), .da = own_scratch_at(call, scratch_of(call).da),
	                        .db = own_scratch_at(call, scratch_of(call).db),
	                        .ddecay = grad_or_sink(call, ROLE_A_LOG, 0),
	                        .ddt_bias = grad_or_sink(call, ROLE_DT_BIAS, call->block->delta.value_heads),
	                        .dout = dout, .scratch = own_scratch_at(call, scratch_of(call).work)}});
}

/* The gradient of mixed, in the place of conv. */
static void convolve_backward(struct stage_call *call)
{
	call_op(call, &(struct op){.kind = OP_CONV_GRAD,
	                      .conv_grad = {CONV_ARGUMENTS(call), .dx = acts_at(call, layout(call)->conv),
	                              .dweight = grad_or_sink(call, ROLE_CONV_W, 0), .dbias = DEV_NONE,
	                              .dy = own_scratch_at(call, scratch_of(call).dconv),
	                              .scratch = own_scratch_at(call, scratch_of(call).work)}});
}

#define GATED_NORM_ARGUMENTS(call)                                                                           \
	.x = acts_at(call, layout(call)->out), .gate = acts_at(call, layout(call)->z),                       \
	.weight = weight_of(call, ROLE_DELTA_NORM_W),                                                        \
	.rstd = own_scratch_at(call, scratch_of(call).hidden_rstd), .rows = (call)->tokens,                  \
	.groups = (call)->block->delta.value_heads, .cols = (call)->block->delta.value_dim,                  \
	.weight_groups = 1, .x_stride = value_cols(call), .gate_stride = value_cols(call),                   \
	.y_stride = value_cols(call), .order = GATE_AFTER_NORM, .dtype = (call)->dtype

static void gated_norm(struct stage_call *call, dev_addr hidden)
{
	call_op(call, &(struct op){.kind = OP_GATED_NORM,
	                      .gated_norm = {GATED_NORM_ARGUMENTS(call), .y = hidden,
	                              .epsilon = call->c->norm_epsilon}});
}

/* In place: hidden's gradient becomes that of the rule's output, z its own. */
static void gated_norm_backward(struct stage_call *call, dev_addr hidden)
{
	call_op(call, &(struct op){.kind = OP_GATED_NORM_GRAD,
	                      .gated_norm_grad = {GATED_NORM_ARGUMENTS(call), .dx = hidden,
	                              .dgate = acts_at(call, layout(call)->z),
	                              .dweight = grad_or_sink(call, ROLE_DELTA_NORM_W, 0), .dy = hidden,
	                              .scratch = own_scratch_at(call, scratch_of(call).work)}});
}

/* ---- forward and backward ---- */

static void forward(struct stage_call *call)
{
	dev_addr input = input_of(call), hidden = own_scratch_at(call, scratch_of(call).hidden), branch;
	struct norm_place norm = norm1_of(call), post = post_norm_of(call);
	struct linear output = output_of(call);

	if (call_has(call, ROLE_NORM1_W))
		norm_forward(call, &norm, input, stream_in(call), call->tokens);
	for (int i = 0; i < PROJECTIONS; i++) {
		struct projection p = projection_of(call, i);

		linear_forward(call, &p.linear, rows_at(call, acts_at(call, p.at), p.linear.out), call->dtype,
		        rows_at(call, input, call->c->C));
	}
	convolve(call);
	rule(call);
	branch = branch_at(call, &post, acts_at(call, layout(call)->branch));
	if (dev_is_none(branch))
		return;
	gated_norm(call, hidden);
	linear_forward(call, &output, rows_at(call, branch, call->c->C), call->dtype,
	        rows_at(call, hidden, value_cols(call)));
	branch_end(call, &post, branch);
}

/* From the gradients of the projections those of their weights and of norm1's output, whose address it
 * returns. */
static dev_addr projections_backward(struct stage_call *call)
{
	const dev_addr d[PROJECTIONS] = {acts_at(call, layout(call)->conv), acts_at(call, layout(call)->z),
	        own_scratch_at(call, scratch_of(call).db), own_scratch_at(call, scratch_of(call).da)};
	dev_addr dnorm = scratch_at(call, call->scratch.dnorm),
	         rounded = scratch_at(call, call->scratch.dnorm_cast);
	int64_t C = call->c->C;

	for (int i = 0; i < PROJECTIONS; i++) {
		struct projection p = projection_of(call, i);
		struct rows dy = rows_at(call, d[i], p.linear.out);

		linear_backward_weight(call, &p.linear, dy, rows_at(call, input_of(call), C));
		linear_backward_input(call, &p.linear, rows_at(call, dnorm, C), DTYPE_F32,
		        i ? LINEAR_ADD : LINEAR_WRITE, dy);
	}
	if (call->dtype == DTYPE_F32)
		return dnorm;
	call_cast(call, rounded, dnorm, call->tokens * C);
	return rounded;
}

static void backward(struct stage_call *call)
{
	dev_addr dx = call->memory->dx, hidden = own_scratch_at(call, scratch_of(call).hidden), dnorm;
	struct norm_place norm = norm1_of(call), post = post_norm_of(call);
	struct linear output = output_of(call);
	struct rows dy =
	        rows_at(call, branch_gradient(call, &post, acts_at(call, layout(call)->branch)), call->c->C);
	struct rows rows = rows_at(call, hidden, value_cols(call));

	gated_norm(call, hidden);
	linear_backward_weight(call, &output, dy, rows);
	linear_backward_input(call, &output, rows, call->dtype, LINEAR_WRITE, dy);
	gated_norm_backward(call, hidden);
	rule_backward(call, hidden);
	convolve_backward(call);
	dnorm = projections_backward(call);
	if (call_has(call, ROLE_NORM1_W))
		norm_backward(call, &norm, dx, dnorm, stream_in(call), call->tokens, LINEAR_ADD,
		        scratch_at(call, call->scratch.norm_partial),
		        scratch_at(call, call->scratch.norm_sink));
	else
		call_add(call, dx, dx, dnorm, call->tokens * call->c->C);
}

static void delta_forward(struct stage_call *call)
{
	const struct delta_layout l = layout_of(call);

	call->layout = &l;
	forward(call);
}

static void delta_backward(struct stage_call *call)
{
	const struct delta_layout l = layout_of(call);

	call->layout = &l;
	backward(call);
}

const struct stage_type stage_delta = {
        .forward = delta_forward,
        .backward = delta_backward,
        .writes_stream = 1,
        .acts_bytes = acts_bytes,
        .scratch_bytes = scratch_bytes,
        .state_bytes = state_bytes,
        .state_goes_back = state_goes_back,
};
