/* Forward and backward of a layer of Mamba-2: norm, one projection to a gate, x, B, C and steps, a short
 * convolution over x, B and C, the scan, a norm with a gate, output. Its ops: device/op_recurrent.h. */
#include "model/blocks/recurrent.h"

#include "base/num.h"

static const struct recurrent_facts facts = {DELTA_SCAN, ROLE_SCAN_CONV_W, ROLE_SCAN_CONV_B, ROLE_SCAN_A_LOG,
        ROLE_SCAN_DT_BIAS, ROLE_SCAN_D, ROLE_SCAN_NORM_W};

/* What forward keeps. */
struct scan_layout {
	int64_t rstd, mean; /* F32 [tokens] */
	int64_t norm;       /* [tokens, C] normalised x; beside attention, which has it, only if it differs */
	int64_t mixed;      /* [tokens, I] the projection: gate, x, B, C, steps */
	int64_t conv;       /* [tokens, W] x, B, C behind the convolution */
	int64_t out;        /* [tokens, heads value_dim] the scan's output */
	int64_t bytes;
};

static int64_t value_cols(const struct stage_call *call)
{
	return delta_value_cols(&call->block->delta);
}

/* Beside attention: what its input is multiplied by here. */
static double input_scale(const struct stage_call *call)
{
	const struct block_scales *s = &call->block->scales;

	return (s->scan_in != 0 ? s->scan_in : 1) / (s->attention_in != 0 ? s->attention_in : 1);
}

static int shares_input(const struct stage_call *call)
{
	return scan_is_beside(call) && input_scale(call) == 1;
}

static struct scan_layout layout_of(const struct stage_call *call)
{
	const struct block_config *b = call->block;
	int64_t e = call->element_bytes, tokens = call->tokens, end = 0,
	        normed = scan_is_beside(call) ? 0 : tokens;
	struct scan_layout l;

	l.rstd = layout_take(&end, normed, 4);
	l.mean = layout_take(&end, call->c->norm == NORM_LAYER ? normed : 0, 4);
	l.norm = layout_take(&end, shares_input(call) ? 0 : tokens * call->c->C, e);
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

struct scan_scratch {
	struct recurrent_scratch shared;
	int64_t dmixed; /* [tokens, I] */
	int64_t bytes;
};

static struct scan_scratch scratch_of(const struct stage_call *call)
{
	int64_t end = 0;
	struct scan_scratch s;

	s.shared = recurrent_scratch_of(call, &facts, &end);
	s.dmixed = layout_take(&end, call->tokens * scan_in_cols(&call->block->delta), call->element_bytes);
	s.bytes = end;
	return s;
}

static int64_t scratch_bytes(const struct stage_call *call)
{
	return scratch_of(call).bytes;
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

static struct recurrent recurrent_of(const struct stage_call *call)
{
	dev_addr mixed = mixed_at(call), dmixed = dmixed_at(call);
	int64_t stride = scan_in_cols(&call->block->delta);

	return (struct recurrent){.facts = &facts,
	        .scratch = scratch_of(call).shared,
	        .mixed = xbc_at(call, mixed),
	        .dmixed = xbc_at(call, dmixed),
	        .mixed_stride = stride,
	        .conv = acts_at(call, layout(call)->conv),
	        .a = step_at(call, mixed),
	        .b = DEV_NONE,
	        .da = step_at(call, dmixed),
	        .db = DEV_NONE,
	        .step_stride = stride,
	        .out = acts_at(call, layout(call)->out),
	        .gate = mixed,
	        .dgate = dmixed,
	        .gate_stride = stride};
}

/* ---- the input ---- */

static dev_addr input_at(const struct stage_call *call)
{
	return shares_input(call) ? attn_input(call) : acts_at(call, layout(call)->norm);
}

static void input_make(struct stage_call *call)
{
	struct norm_place norm = norm1_of(call);

	if (!scan_is_beside(call))
		norm_forward(call, &norm, input_at(call), stream_in(call), call->tokens);
	else if (!shares_input(call))
		call_scale(
		        call, input_at(call), attn_input(call), call->tokens * call->c->C, input_scale(call));
}

/* Where its gradient is made, and takes it on to the stream. Attention's backward, which follows, adds that
 * of a scan beside it to its own. */
static dev_addr dinput_at(const struct stage_call *call)
{
	if (scan_is_beside(call))
		return scratch_at(call, call->scratch.residual);
	return scratch_at(call, call->dtype == DTYPE_F32 ? call->scratch.dnorm : call->scratch.dnorm_cast);
}

static void input_backward(struct stage_call *call)
{
	struct norm_place norm = norm1_of(call);
	dev_addr dinput = dinput_at(call);

	if (!scan_is_beside(call))
		norm_backward(call, &norm, call->memory->dx, dinput, stream_in(call), call->tokens,
		        LINEAR_ADD, scratch_at(call, call->scratch.norm_partial),
		        scratch_at(call, call->scratch.norm_sink));
	else if (!shares_input(call))
		call_scale(call, dinput, dinput, call->tokens * call->c->C, input_scale(call));
}

/* Multiplies the parts of the projection, or of its gradient. transformers has the factors as a tensor, which
 * is rounded to the compute dtype. */
static void parts_scale(struct stage_call *call, dev_addr mixed)
{
	const struct delta_config *d = &call->block->delta;
	const int64_t columns[SCAN_PARTS] = {delta_value_cols(d), delta_value_cols(d),
	        d->key_heads * d->key_dim, d->key_heads * d->key_dim, d->value_heads};

	for (int i = 0; i < SCAN_PARTS; i++) {
		float factor = (float)call->block->scales.scan[i];

		if (call->dtype == DTYPE_BF16)
			factor = bf16_to_f32(bf16_from_f32(factor));
		if (factor != 0)
			call_op(call, &(struct op){.kind = OP_COLUMNS,
			                      .columns = {.dst = mixed,
			                              .src = mixed,
			                              .rows = call->tokens,
			                              .cols = columns[i],
			                              .dst_stride = scan_in_cols(d),
			                              .src_stride = scan_in_cols(d),
			                              .dst_dtype = call->dtype,
			                              .src_dtype = call->dtype,
			                              .factor = factor}});
		mixed = dev_at(mixed, columns[i] * call->element_bytes);
	}
}

/* ---- forward and backward ---- */

static void forward(struct stage_call *call)
{
	struct recurrent r = recurrent_of(call);
	struct norm_place post = post_norm_of(call);
	struct linear input = input_of(call), output = output_of(call);
	dev_addr branch;

	input_make(call);
	linear_forward(call, &input, rows_at(call, mixed_at(call), input.out), call->dtype,
	        rows_at(call, input_at(call), call->c->C));
	parts_scale(call, mixed_at(call));
	recurrent_forward(call, &r);
	branch = branch_at(call, &post, DEV_NONE);
	if (dev_is_none(branch))
		return;
	linear_forward(
	        call, &output, rows_at(call, branch, call->c->C), call->dtype, recurrent_hidden(call, &r));
	branch_end(call, &post, branch);
}

static void backward(struct stage_call *call)
{
	struct recurrent r = recurrent_of(call);
	struct norm_place post = post_norm_of(call);
	struct linear input = input_of(call), output = output_of(call);
	struct rows dy = rows_at(call, branch_gradient(call, &post, DEV_NONE), call->c->C);
	struct rows hidden = recurrent_hidden(call, &r), dmixed = rows_at(call, dmixed_at(call), input.out);

	linear_backward_weight(call, &output, dy, hidden);
	linear_backward_input(call, &output, hidden, call->dtype, LINEAR_WRITE, dy);
	recurrent_backward(call, &r);
	parts_scale(call, dmixed.base);
	linear_backward_weight(call, &input, dmixed, rows_at(call, input_at(call), call->c->C));
	linear_backward_input(
	        call, &input, rows_at(call, dinput_at(call), call->c->C), call->dtype, LINEAR_WRITE, dmixed);
	input_backward(call);
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
        .state_bytes = recurrent_state_bytes,
        .state_goes_back = recurrent_goes_back,
};
