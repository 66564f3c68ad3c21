/* Forward and backward of a layer of the gated delta rule: norm, projections, a short convolution over q, k
 * and v, the rule, a norm with a gate, output. Its ops: device/op_recurrent.h. */
#include "model/blocks/recurrent.h"

static const struct recurrent_facts facts = {
        DELTA_GATED, ROLE_CONV_W, ROLE_COUNT, ROLE_A_LOG, ROLE_DT_BIAS, ROLE_COUNT, ROLE_DELTA_NORM_W};

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
	return delta_value_cols(&call->block->delta);
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

struct delta_scratch {
	struct recurrent_scratch shared;
	int64_t db, da; /* [tokens, heads] */
	int64_t bytes;
};

static struct delta_scratch scratch_of(const struct stage_call *call)
{
	int64_t heads = call->tokens * call->block->delta.value_heads, end = 0;
	struct delta_scratch s;

	s.shared = recurrent_scratch_of(call, &facts, &end);
	s.db = layout_take(&end, heads, call->element_bytes);
	s.da = layout_take(&end, heads, call->element_bytes);
	s.bytes = end;
	return s;
}

static int64_t scratch_bytes(const struct stage_call *call)
{
	return scratch_of(call).bytes;
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

static struct recurrent recurrent_of(const struct stage_call *call)
{
	const struct delta_layout *l = layout(call);
	struct delta_scratch s = scratch_of(call);

	return (struct recurrent){.facts = &facts,
	        .scratch = s.shared,
	        .mixed = acts_at(call, l->mixed),
	        .dmixed = acts_at(call, l->conv),
	        .mixed_stride = delta_qkv_cols(&call->block->delta),
	        .conv = acts_at(call, l->conv),
	        .a = acts_at(call, l->a),
	        .b = acts_at(call, l->b),
	        .da = own_scratch_at(call, s.da),
	        .db = own_scratch_at(call, s.db),
	        .step_stride = call->block->delta.value_heads,
	        .out = acts_at(call, l->out),
	        .gate = acts_at(call, l->z),
	        .dgate = acts_at(call, l->z),
	        .gate_stride = value_cols(call)};
}

/* ---- forward and backward ---- */

static void forward(struct stage_call *call)
{
	dev_addr input = input_of(call), branch;
	struct recurrent r = recurrent_of(call);
	struct norm_place norm = norm1_of(call), post = post_norm_of(call);
	struct linear output = output_of(call);

	if (call_has(call, ROLE_NORM1_W))
		norm_forward(call, &norm, input, stream_in(call), call->tokens);
	for (int i = 0; i < PROJECTIONS; i++) {
		struct projection p = projection_of(call, i);

		linear_forward(call, &p.linear, rows_at(call, acts_at(call, p.at), p.linear.out), call->dtype,
		        rows_at(call, input, call->c->C));
	}
	recurrent_forward(call, &r);
	branch = branch_at(call, &post, acts_at(call, layout(call)->branch));
	if (dev_is_none(branch))
		return;
	linear_forward(
	        call, &output, rows_at(call, branch, call->c->C), call->dtype, recurrent_hidden(call, &r));
	branch_end(call, &post, branch);
}

/* From the gradients of the projections those of their weights and of norm1's output, whose address it
 * returns. */
static dev_addr projections_backward(struct stage_call *call)
{
	struct recurrent r = recurrent_of(call);
	const dev_addr d[PROJECTIONS] = {r.dmixed, r.dgate, r.db, r.da};
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
	dev_addr dx = call->memory->dx, dnorm;
	struct recurrent r = recurrent_of(call);
	struct norm_place norm = norm1_of(call), post = post_norm_of(call);
	struct linear output = output_of(call);
	struct rows dy =
	        rows_at(call, branch_gradient(call, &post, acts_at(call, layout(call)->branch)), call->c->C);
	struct rows hidden = recurrent_hidden(call, &r);

	linear_backward_weight(call, &output, dy, hidden);
	linear_backward_input(call, &output, hidden, call->dtype, LINEAR_WRITE, dy);
	recurrent_backward(call, &r);
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
        .state_bytes = recurrent_state_bytes,
        .state_goes_back = recurrent_goes_back,
};
