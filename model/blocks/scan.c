/* Forward and backward of a layer of Mamba-2: norm, one projection to a gate, x, B, C and steps, a short
 * convolution over x, B and C, the scan, a norm with a gate, output. Its ops: device/op_recurrent.h. */
#include "model/blocks/block.h"

#include "base/size.h"

/* What forward keeps. */
struct scan_layout {
	int64_t rstd, mean; /* F32 [tokens] */
	int64_t norm;       /* [tokens, C] normalised x */
	int64_t mixed;      /* [tokens, I] the projection: gate, x, B, C, steps */
	int64_t conv;       /* [tokens, W] x, B, C behind the convolution */
	int64_t out;        /* [tokens, heads value_dim] the scan's output */
	int64_t bytes;
};

static int64_t value_cols(const struct stage_call *call)
{
	return call->block->delta.value_heads * call->block->delta.value_dim;
}

static struct scan_layout layout_of(const struct stage_call *call)
{
	const struct block_config *b = call->block;
	int64_t e = call->element_bytes, tokens = call->tokens, end = 0;
	struct scan_layout l;

	l.rstd = layout_take(&end, tokens, 4);
	l.mean = layout_take(&end, call->c->norm == NORM_LAYER ? tokens : 0, 4);
	l.norm = layout_take(&end, tokens * call->c->C, e);
	l.mixed = layout_take(&end, tokens * scan_in_cols(&b->delta), e);
	l.conv = layout_take(&end, tokens * delta_qkv_cols(&b->delta), e);
	l.out = layout_take(&end, tokens * value_cols(call), e);
	l.bytes = end;
	return l;
}

static int64_t acts_bytes(const struct stage_call *call)
{
	return layout_of(call).bytes;
}

static const struct scan_layout *layout(const struct stage_call *call)
{
	return call->layout;
}

/* hidden is also needed in forward. The scan, the convolution and the norm use `work` one after the other. */
struct scan_scratch {
	int64_t hidden; /* [tokens, heads value_dim] the gated norm's output, then its gradient, then that of
	                   the scan's output */
	int64_t hidden_rstd; /* F32 [tokens, groups] */
	int64_t dmixed;      /* [tokens, I] */
	int64_t dconv;       /* [tokens, W] */
	int64_t work;        /* F32 */
	int64_t sink;        /* F32, gradients of frozen tensors that ops compute all the same */
	int64_t bytes;
};

/* Elements that a sink needs: of each op, all the tensors whose gradients it adds to. */
static int64_t sink_count(const struct stage_call *call)
{
	static const enum tensor_role summed[] = {ROLE_SCAN_CONV_W, ROLE_SCAN_CONV_B, ROLE_SCAN_A_LOG,
	        ROLE_SCAN_DT_BIAS, ROLE_SCAN_D, ROLE_SCAN_NORM_W};
	const struct block_config *b = call->block;
	int is_frozen = 0;

	for (size_t i = 0; i < sizeof(summed) / sizeof(*summed); i++)
		is_frozen |= call_has_frozen(call, summed[i]);
	return !is_frozen ? 0
	                  : max_i64(delta_qkv_cols(&b->delta) * (b->taps + 1),
	                            max_i64(3 * b->delta.value_heads, value_cols(call)));
}

static struct scan_scratch scratch_of(const struct stage_call *call)
{
	const struct block_config *b = call->block;
	const struct delta_config *d = &b->delta;
	int64_t e = call->element_bytes, tokens = call->tokens, end = 0, work;
	struct scan_scratch s;

	work = max_i64(delta_scratch_count(tokens, d->value_heads, d->key_dim, d->value_dim),
	        max_i64(conv_scratch_count(tokens, delta_qkv_cols(d), b->taps),
	                gated_norm_scratch_count(tokens, d->key_heads, value_cols(call) / d->key_heads)));
	s.hidden = layout_take(&end, tokens * value_cols(call), e);
	s.hidden_rstd = layout_take(&end, tokens * d->key_heads, 4);
	s.dmixed = layout_take(&end, tokens * scan_in_cols(d), e);
	s.dconv = layout_take(&end, tokens * delta_qkv_cols(d), e);
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

	layout_take(&end, cache_texts(shape) * (call->block->taps - 1) * delta_qkv_cols(&call->block->delta),
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

/* Where parts of the projection, or of its gradient, begin: the gate at 0, then x, B and C, then steps. */
static dev_addr xbc_at(const struct stage_call *call, dev_addr mixed)
{
	return dev_at(mixed, value_cols(call) * call->element_bytes);
}

static dev_addr step_at(const struct stage_call *call, dev_addr mixed)
{
	return dev_at(mixed, (value_cols(call) + delta_qkv_cols(&call->block->delta)) * call->element_bytes);
}

/* B and C behind x, in the convolution's output or its gradient. */
static dev_addr b_at(const struct stage_call *call, dev_addr conv)
{
	return dev_at(conv, value_cols(call) * call->element_bytes);
}

static dev_addr c_at(const struct stage_call *call, dev_addr conv)
{
	const struct delta_config *d = &call->block->delta;

	return dev_at(b_at(call, conv), d->key_heads * d->key_dim * call->element_bytes);
}

static dev_addr mixed_at(const struct stage_call *call)
{
	return acts_at(call, layout(call)->mixed);
}

static dev_addr dmixed_at(const struct stage_call *call)
{
	return own_scratch_at(call, scratch_of(call).dmixed);
}

static struct linear input_of(const struct stage_call *call)
{
	return (struct linear){ROLE_SCAN_IN_W, ROLE_SCAN_IN_B, scan_in_cols(&call->block->delta), call->c->C,
	        call->c->weight_in_out, 0, 0};
}

static struct linear output_of(const struct stage_call *call)
{
	return (struct linear){
	        ROLE_SCAN_OUT_W, ROLE_SCAN_OUT_B, call->c->C, value_cols(call), call->c->weight_in_out, 0, 0};
}

static struct norm_place norm1_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_NORM1_W, ROLE_NORM1_B, acts_at(call, layout(call)->rstd),
	        acts_at(call, layout(call)->mean), scratch_at(call, call->scratch.norm_zeros)};
}

/* Families with such a layer have no norm behind it. */
static struct norm_place post_norm_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_POST_NORM1_W, ROLE_COUNT, DEV_NONE, DEV_NONE,
	        scratch_at(call, call->scratch.norm_zeros)};
}

/* Its gradient, or a place that nobody reads. */
static dev_addr grad_or_sink(const struct stage_call *call, enum tensor_role role, int64_t first)
{
	return grad_or(call, role, own_scratch_at(call, scratch_of(call).sink + 4 * first));
}

#define CONV_ARGUMENTS(call)                                                                                 \
	.x = xbc_at(call, mixed_at(call)), .weight = weight_of(call, ROLE_SCAN_CONV_W),                      \
	.bias = weight_of(call, ROLE_SCAN_CONV_B), .doc_start = (call)->batch->doc_start,                    \
	.tokens = (call)->tokens, .cols = delta_qkv_cols(&(call)->block->delta),                             \
	.taps = (call)->block->taps, .x_stride = scan_in_cols(&(call)->block->delta),                        \
	.y_stride = delta_qkv_cols(&(call)->block->delta), .act = CONV_SILU, .dtype = (call)->dtype

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

/* The gradient of x, B and C before the convolution, in their place of dmixed. */
static void convolve_backward(struct stage_call *call)
{
	int64_t weights = delta_qkv_cols(&call->block->delta) * call->block->taps;

	call_op(call, &(struct op){.kind = OP_CONV_GRAD,
	                      .conv_grad = {CONV_ARGUMENTS(call), .dx = xbc_at(call, dmixed_at(call)),
	                              .dweight = grad_or_sink(call, ROLE_SCAN_CONV_W, 0),
	                              .dbias = grad_or_sink(call, ROLE_SCAN_CONV_B, weights),
	                              .dy = own_scratch_at(call, scratch_of(call).dconv),
	                              .scratch = own_scratch_at(call, scratch_of(call).work)}});
}

#define SCAN_ARGUMENTS(call, conv)                                                                           \
	.q = c_at(call, conv), .k = b_at(call, conv), .v = (conv), .a = step_at(call, mixed_at(call)),       \
	.decay = weight_of(call, ROLE_SCAN_A_LOG), .dt_bias = weight_of(call, ROLE_SCAN_DT_BIAS),            \
	.skip = weight_of(call, ROLE_SCAN_D), .doc_start = (call)->batch->doc_start,                         \
	.tokens = (call)->tokens, .key_heads = (call)->block->delta.key_heads,                               \
	.value_heads = (call)->block->delta.value_heads, .key_dim = (call)->block->delta.key_dim,            \
	.value_dim = (call)->block->delta.value_dim, .qkv_stride = delta_qkv_cols(&(call)->block->delta),    \
	.gate_stride = scan_in_cols(&(call)->block->delta), .out_stride = value_cols(call), .scale = 1,      \
	.low = (call)->block->scan.step_low, .high = (call)->block->scan.step_high, .rule = DELTA_SCAN,      \
	.dtype = (call)->dtype

static void scan(struct stage_call *call)
{
	dev_addr conv = acts_at(call, layout(call)->conv), out = acts_at(call, layout(call)->out);
	const struct cache_shape *cached = &call->memory->cached;

	if (dev_is_none(call->memory->state))
		call_op(call,
		        &(struct op){.kind = OP_DELTA, .delta = {SCAN_ARGUMENTS(call, conv), .out = out}});
	else
		call_op(call,
		        &(struct op){.kind = OP_DELTA_CACHED,
		                .delta_cached = {SCAN_ARGUMENTS(call, conv), .out = out,
		                        .state = call->memory->state, .doc_end = call->batch->doc_end,
		                        .texts = cache_texts(cached), .text_rows = cache_text_rows(cached)}});
}

static void scan_backward_rule(struct stage_call *call, dev_addr dout)
{
	dev_addr conv = acts_at(call, layout(call)->conv),
	         dconv = own_scratch_at(call, scratch_of(call).dconv);
	int64_t heads = call->block->delta.value_heads;

	call_op(call,
	        &(struct op){.kind = OP_DELTA_GRAD,
	                .delta_grad = {SCAN_ARGUMENTS(call, conv), .dq = c_at(call, dconv),
	                        .dk = b_at(call, dconv), .dv = dconv, .da = step_at(call, dmixed_at(call)),
	                        .ddecay = grad_or_sink(call, ROLE_SCAN_A_LOG, 0),
	                        .ddt_bias = grad_or_sink(call, ROLE_SCAN_DT_BIAS, heads),
	                        .dskip = grad_or_sink(call, ROLE_SCAN_D, 2 * heads), .dout = dout,
	                        .scratch = own_scratch_at(call, scratch_of(call).work)}});
}

#define GATED_NORM_ARGUMENTS(call)                                                                           \
	.x = acts_at(call, layout(call)->out), .gate = mixed_at(call),                                       \
	.weight = weight_of(call, ROLE_SCAN_NORM_W),                                                         \
	.rstd = own_scratch_at(call, scratch_of(call).hidden_rstd), .rows = (call)->tokens,                  \
	.groups = (call)->block->delta.key_heads, .cols = value_cols(call) / (call)->block->delta.key_heads, \
	.weight_groups = (call)->block->delta.key_heads, .x_stride = value_cols(call),                       \
	.gate_stride = scan_in_cols(&(call)->block->delta), .y_stride = value_cols(call),                    \
	.order = GATE_BEFORE_NORM, .dtype = (call)->dtype

static void gated_norm(struct stage_call *call, dev_addr hidden)
{
	call_op(call, &(struct op){.kind = OP_GATED_NORM,
	                      .gated_norm = {GATED_NORM_ARGUMENTS(call), .y = hidden,
	                              .epsilon = call->c->norm_epsilon}});
}

/* hidden's gradient becomes that of the scan's output, in place. */
static void gated_norm_backward(struct stage_call *call, dev_addr hidden)
{
	call_op(call,
	        &(struct op){.kind = OP_GATED_NORM_GRAD,
	                .gated_norm_grad = {GATED_NORM_ARGUMENTS(call), .dx = hidden,
	                        .dgate = dmixed_at(call), .dweight = grad_or_sink(call, ROLE_SCAN_NORM_W, 0),
	                        .dy = hidden, .scratch = own_scratch_at(call, scratch_of(call).work)}});
}

/* ---- forward and backward ---- */

static void forward(struct stage_call *call)
{
	dev_addr normed = acts_at(call, layout(call)->norm),
	         hidden = own_scratch_at(call, scratch_of(call).hidden), branch;
	struct norm_place norm = norm1_of(call), post = post_norm_of(call);
	struct linear input = input_of(call), output = output_of(call);

	norm_forward(call, &norm, normed, stream_in(call), call->tokens);
	linear_forward(call, &input, rows_at(call, mixed_at(call), input.out), call->dtype,
	        rows_at(call, normed, call->c->C));
	convolve(call);
	scan(call);
	branch = branch_at(call, &post, DEV_NONE);
	if (dev_is_none(branch))
		return;
	gated_norm(call, hidden);
	linear_forward(call, &output, rows_at(call, branch, call->c->C), call->dtype,
	        rows_at(call, hidden, value_cols(call)));
	branch_end(call, &post, branch);
}

static void backward(struct stage_call *call)
{
	dev_addr hidden = own_scratch_at(call, scratch_of(call).hidden),
	         dnorm = scratch_at(
	                 call, call->dtype == DTYPE_F32 ? call->scratch.dnorm : call->scratch.dnorm_cast);
	struct norm_place norm = norm1_of(call), post = post_norm_of(call);
	struct linear input = input_of(call), output = output_of(call);
	struct rows dy = rows_at(call, branch_gradient(call, &post, DEV_NONE), call->c->C);
	struct rows rows = rows_at(call, hidden, value_cols(call)),
	            dmixed = rows_at(call, dmixed_at(call), input.out);

	gated_norm(call, hidden);
	linear_backward_weight(call, &output, dy, rows);
	linear_backward_input(call, &output, rows, call->dtype, LINEAR_WRITE, dy);
	gated_norm_backward(call, hidden);
	scan_backward_rule(call, hidden);
	convolve_backward(call);
	linear_backward_weight(
	        call, &input, dmixed, rows_at(call, acts_at(call, layout(call)->norm), call->c->C));
	linear_backward_input(
	        call, &input, rows_at(call, dnorm, call->c->C), call->dtype, LINEAR_WRITE, dmixed);
	norm_backward(call, &norm, call->memory->dx, dnorm, stream_in(call), call->tokens, LINEAR_ADD,
	        scratch_at(call, call->scratch.norm_partial), scratch_at(call, call->scratch.norm_sink));
}

static void scan_forward(struct stage_call *call)
{
	const struct scan_layout l = layout_of(call);

	call->layout = &l;
	forward(call);
}

static void scan_backward(struct stage_call *call)
{
	const struct scan_layout l = layout_of(call);

	call->layout = &l;
	backward(call);
}

const struct stage_type stage_scan = {
        .forward = scan_forward,
        .backward = scan_backward,
        .writes_stream = 1,
        .acts_bytes = acts_bytes,
        .scratch_bytes = scratch_bytes,
        .state_bytes = state_bytes,
        .state_goes_back = state_goes_back,
};
