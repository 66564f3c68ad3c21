/* Forward and backward of a gated short convolution (LFM2): norm, then b | c | u in one product; conv(b * u)
 * times c goes to the output. */
#include "model/blocks/block.h"

_Static_assert(
        (int)BLOCK_TAPS_MAX == (int)CONV_TAPS_MAX, "what config.json may ask for, and what the op can");

/* Offsets in bytes; a part that the block does not need has no room. */
struct conv_layout {
	int64_t rstd, mean; /* F32 [tokens] */
	int64_t norm;       /* [tokens, C] normalised x */
	int64_t bcu;        /* [tokens, 3 C] */
	int64_t mixed;      /* [tokens, C] the convolution's output */
	int64_t branch;     /* with POST_NORM1_W: [tokens, C] the last product, before that norm */
	int64_t post_rstd;  /* F32 [tokens] */
	int64_t bytes;
};

static struct conv_layout layout_of(const struct stage_call *call)
{
	int64_t e = call->element_bytes, tokens = call->tokens, C = call->c->C, end = 0;
	int64_t post = call_has(call, ROLE_POST_NORM1_W) ? tokens : 0;
	struct conv_layout l;

	l.rstd = layout_take(&end, tokens, 4);
	l.mean = layout_take(&end, call->c->norm == NORM_LAYER ? tokens : 0, 4);
	l.norm = layout_take(&end, call_has(call, ROLE_NORM1_W) ? tokens * C : 0, e);
	l.bcu = layout_take(&end, tokens * 3 * C, e);
	l.mixed = layout_take(&end, tokens * C, e);
	l.branch = layout_take(&end, post * C, e);
	l.post_rstd = layout_take(&end, post, 4);
	l.bytes = end;
	return l;
}

static int64_t conv_acts_bytes(const struct stage_call *call)
{
	return layout_of(call).bytes;
}

/* Forward uses the first two. */
struct conv_scratch {
	int64_t product; /* [tokens, C] b * u, what the convolution reads */
	int64_t gated;   /* [tokens, C] what the output's product reads; its gradient; that of `mixed` */
	int64_t dproduct;
	int64_t dbcu;
	int64_t sums; /* F32, scratch of the convolution's gradient */
	int64_t sink; /* F32 [C, taps + 1], gradients of a filter and its bias if either is frozen */
	int64_t bytes;
};

static struct conv_scratch scratch_of(const struct stage_call *call)
{
	int64_t e = call->element_bytes, C = call->c->C, count = call->tokens * C, taps = call->block->taps,
	        end = 0;
	int is_frozen =
	        call_has_frozen(call, ROLE_CONV_FILTER_W) || call_has_frozen(call, ROLE_CONV_FILTER_B);
	struct conv_scratch s;

	s.product = layout_take(&end, count, e);
	s.gated = layout_take(&end, count, e);
	s.dproduct = layout_take(&end, count, e);
	s.dbcu = layout_take(&end, 3 * count, e);
	s.sums = layout_take(&end, conv_scratch_count(call->tokens, C, taps), 4);
	s.sink = layout_take(&end, is_frozen ? C * (taps + 1) : 0, 4);
	s.bytes = end;
	return s;
}

static int64_t conv_scratch_bytes(const struct stage_call *call)
{
	return scratch_of(call).bytes;
}

/* ---- generation: the last inputs of each text ---- */

static int64_t conv_state_bytes(const struct stage_call *call, const struct cache_shape *shape)
{
	return cache_texts(shape) * (call->block->taps - 1) * call->c->C * call->element_bytes;
}

static int conv_goes_back(
        const struct stage_call *call, const struct cache_shape *shape, int64_t reached, int64_t at)
{
	(void)shape;
	return at == reached || call->block->taps == 1;
}

/* ---- parts ---- */

static struct linear input_of(const struct stage_call *call)
{
	return (struct linear){
	        ROLE_CONV_IN_W, ROLE_CONV_IN_B, 3 * call->c->C, call->c->C, call->c->weight_in_out, 0, 0};
}

static struct linear output_of(const struct stage_call *call)
{
	return (struct linear){
	        ROLE_CONV_OUT_W, ROLE_CONV_OUT_B, call->c->C, call->c->C, call->c->weight_in_out, 0, 0};
}

static struct norm_place norm_of(const struct stage_call *call)
{
	struct conv_layout l = layout_of(call);

	return (struct norm_place){ROLE_NORM1_W, ROLE_NORM1_B, acts_at(call, l.rstd), acts_at(call, l.mean),
	        scratch_at(call, call->scratch.norm_zeros)};
}

static struct norm_place post_norm_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_POST_NORM1_W, ROLE_COUNT, acts_at(call, layout_of(call).post_rstd),
	        DEV_NONE, scratch_at(call, call->scratch.norm_zeros)};
}

static dev_addr input_at(const struct stage_call *call)
{
	return call_has(call, ROLE_NORM1_W) ? acts_at(call, layout_of(call).norm) : stream_in(call);
}

/* Part 0, 1 or 2 of b | c | u, or of its gradient. */
static dev_addr part_at(const struct stage_call *call, dev_addr bcu, int part)
{
	return dev_at(bcu, part * call->c->C * call->element_bytes);
}

/* y = x * gate; gate is a part of b | c | u, x has rows of x_stride. */
static void multiply(struct stage_call *call, dev_addr y, dev_addr x, int64_t x_stride, dev_addr gate)
{
	int64_t C = call->c->C;
	struct op_gate o = {.y = y, .x = x, .gate = gate, .rows = call->tokens, .groups = 1, .cols = C};

	o.x_stride = x_stride;
	o.y_stride = C;
	o.gate_stride = o.gate_group_stride = 3 * C;
	o.act = ACT_LINEAR;
	o.dtype = call->dtype;
	call_op(call, &(struct op){.kind = OP_GATE, .gate = o});
}

static void multiply_backward(struct stage_call *call, dev_addr dx, dev_addr dgate, dev_addr dy, dev_addr x,
        int64_t x_stride, dev_addr gate)
{
	int64_t C = call->c->C;
	struct op_gate_grad o = {.dx = dx, .dgate = dgate, .dy = dy, .x = x, .gate = gate};

	o.rows = call->tokens;
	o.groups = 1;
	o.cols = o.y_stride = C;
	o.x_stride = x_stride;
	o.gate_stride = o.gate_group_stride = 3 * C;
	o.act = ACT_LINEAR;
	o.dtype = call->dtype;
	call_op(call, &(struct op){.kind = OP_GATE_GRAD, .gate_grad = o});
}

static dev_addr product(struct stage_call *call)
{
	dev_addr bcu = acts_at(call, layout_of(call).bcu), y = own_scratch_at(call, scratch_of(call).product);

	multiply(call, y, part_at(call, bcu, 2), 3 * call->c->C, part_at(call, bcu, 0));
	return y;
}

static dev_addr gated(struct stage_call *call)
{
	struct conv_layout l = layout_of(call);
	dev_addr y = own_scratch_at(call, scratch_of(call).gated);

	multiply(call, y, acts_at(call, l.mixed), call->c->C, part_at(call, acts_at(call, l.bcu), 1));
	return y;
}

/* ---- the convolution ---- */

static void convolve(struct stage_call *call, dev_addr y, dev_addr x)
{
	const struct cache_shape *cached = &call->memory->cached;
	int64_t C = call->c->C, taps = call->block->taps;
	dev_addr weight = weight_of(call, ROLE_CONV_FILTER_W), bias = weight_of(call, ROLE_CONV_FILTER_B);

	if (dev_is_none(call->memory->state))
		call_op(call, &(struct op){.kind = OP_CONV,
		                      .conv = {y, x, weight, bias, call->batch->doc_start, call->tokens, C,
		                              taps, C, C, CONV_PLAIN, call->dtype}});
	else
		call_op(call, &(struct op){.kind = OP_CONV_CACHED,
		                      .conv_cached = {y, call->memory->state, x, weight, bias,
		                              call->batch->doc_start, call->batch->doc_end, call->tokens,
		                              cache_texts(cached), cache_text_rows(cached), C, taps, C, C,
		                              CONV_PLAIN, call->dtype}});
}

static void convolve_backward(struct stage_call *call, dev_addr dx, dev_addr dy, dev_addr x)
{
	struct conv_scratch s = scratch_of(call);
	int64_t C = call->c->C, taps = call->block->taps;
	dev_addr weight = weight_of(call, ROLE_CONV_FILTER_W), bias = weight_of(call, ROLE_CONV_FILTER_B),
	         sink = own_scratch_at(call, s.sink);

	call_op(call, &(struct op){.kind = OP_CONV_GRAD,
	                      .conv_grad = {.dx = dx,
	                              .dweight = grad_or(call, ROLE_CONV_FILTER_W, sink),
	                              .dbias = grad_or(call, ROLE_CONV_FILTER_B, dev_at(sink, 4 * C * taps)),
	                              .dy = dy,
	                              .x = x,
	                              .weight = weight,
	                              .bias = bias,
	                              .doc_start = call->batch->doc_start,
	                              .scratch = own_scratch_at(call, s.sums),
	                              .tokens = call->tokens,
	                              .cols = C,
	                              .taps = taps,
	                              .x_stride = C,
	                              .y_stride = C,
	                              .act = CONV_PLAIN,
	                              .dtype = call->dtype}});
}

/* ---- the stage ---- */

static void conv_forward(struct stage_call *call)
{
	struct conv_layout l = layout_of(call);
	struct norm_place norm = norm_of(call), post = post_norm_of(call);
	struct linear input = input_of(call), output = output_of(call);
	int64_t C = call->c->C;
	dev_addr branch = branch_at(call, &post, acts_at(call, l.branch));

	if (call_has(call, ROLE_NORM1_W))
		norm_forward(call, &norm, input_at(call), stream_in(call), call->tokens);
	linear_forward(call, &input, rows_at(call, acts_at(call, l.bcu), 3 * C), call->dtype,
	        rows_at(call, input_at(call), C));
	convolve(call, acts_at(call, l.mixed), product(call));
	if (dev_is_none(branch))
		return;
	linear_forward(call, &output, rows_at(call, branch, C), call->dtype, rows_at(call, gated(call), C));
	branch_end(call, &post, branch);
}

static void conv_backward(struct stage_call *call)
{
	struct conv_layout l = layout_of(call);
	struct conv_scratch s = scratch_of(call);
	struct norm_place norm = norm_of(call), post = post_norm_of(call);
	struct linear input = input_of(call), output = output_of(call);
	int64_t C = call->c->C;
	dev_addr bcu = acts_at(call, l.bcu), dbcu = own_scratch_at(call, s.dbcu), dx = call->memory->dx;
	dev_addr dgated = own_scratch_at(call, s.gated), dproduct = own_scratch_at(call, s.dproduct);
	dev_addr dnorm =
	        scratch_at(call, call->dtype == DTYPE_F32 ? call->scratch.dnorm : call->scratch.dnorm_cast);
	struct rows dy = rows_at(call, branch_gradient(call, &post, acts_at(call, l.branch)), C);

	linear_backward_weight(call, &output, dy, rows_at(call, gated(call), C));
	linear_backward_input(call, &output, rows_at(call, dgated, C), call->dtype, LINEAR_WRITE, dy);
	multiply_backward(call, dgated, part_at(call, dbcu, 1), dgated, acts_at(call, l.mixed), C,
	        part_at(call, bcu, 1));
	convolve_backward(call, dproduct, dgated, product(call));
	multiply_backward(call, part_at(call, dbcu, 2), part_at(call, dbcu, 0), dproduct,
	        part_at(call, bcu, 2), 3 * C, part_at(call, bcu, 0));
	linear_backward_weight(call, &input, rows_at(call, dbcu, 3 * C), rows_at(call, input_at(call), C));
	linear_backward_input(
	        call, &input, rows_at(call, dnorm, C), call->dtype, LINEAR_WRITE, rows_at(call, dbcu, 3 * C));
	if (call_has(call, ROLE_NORM1_W))
		norm_backward(call, &norm, dx, dnorm, stream_in(call), call->tokens, LINEAR_ADD,
		        scratch_at(call, call->scratch.norm_partial),
		        scratch_at(call, call->scratch.norm_sink));
	else
		call_add(call, dx, dx, dnorm, call->tokens * C);
}

const struct stage_type stage_conv = {.forward = conv_forward,
        .backward = conv_backward,
        .writes_stream = 1,
        .acts_bytes = conv_acts_bytes,
        .scratch_bytes = conv_scratch_bytes,
        .state_bytes = conv_state_bytes,
        .state_goes_back = conv_goes_back};
