/* Forward and backward of the MLP: norm, gate, up, activation, down. */
#include "model/blocks/block.h"

/* Gate and up read norm2's output. down reads act(gate) * up, and backward computes that product again. A
 * fused tensor holds the gate's rows, then up's; the stage `up` then computes both. */
static struct linear gate_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;

	if (call_has(call, ROLE_GATE_UP_W))
		return (struct linear){ROLE_GATE_UP_W, ROLE_COUNT, call->block->F, c->C, 0, 0, 1};
	return (struct linear){ROLE_GATE_W, ROLE_GATE_B, call->block->F, c->C, c->weight_in_out, 0, 0};
}

static struct linear up_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;

	if (call_has(call, ROLE_GATE_UP_W))
		return (struct linear){
		        ROLE_GATE_UP_W, ROLE_COUNT, call->block->F, c->C, 0, call->block->F, 0};
	return (struct linear){ROLE_UP_W, ROLE_UP_B, call->block->F, c->C, c->weight_in_out, 0, 0};
}

static struct linear down_of(const struct stage_call *call)
{
	return (struct linear){
	        ROLE_DOWN_W, ROLE_DOWN_B, call->c->C, call->block->F, call->c->weight_in_out, 0, 0};
}

/* What the MLP keeps for backward. Its first stage, gate or else up, has the norm's part. */
struct mlp_layout {
	int64_t rstd, mean; /* F32 [tokens] */
	int64_t norm;       /* [tokens, C] */
	int64_t gate, up;   /* [tokens, F]; backward of `down` overwrites them with their gradients */
	int64_t bytes;
};

static int is_first(const struct stage_call *call, enum stage_kind kind)
{
	return kind == STAGE_GATE || !call->block->has[ROLE_GATE_W];
}

static struct mlp_layout layout_of(const struct stage_call *call, enum stage_kind kind)
{
	const struct block_config *b = call->block;
	int64_t tokens = call->tokens, e = call->element_bytes, end = 0,
	        rows = is_first(call, kind) ? tokens : 0;
	int has_gate = kind == STAGE_GATE || b->has[ROLE_GATE_UP_W];
	struct mlp_layout l;

	l.rstd = layout_take(&end, rows, 4);
	l.mean = layout_take(&end, call->c->norm == NORM_LAYER ? rows : 0, 4);
	l.norm = layout_take(&end, b->has[ROLE_NORM2_W] ? rows * call->c->C : 0, e);
	l.gate = layout_take(&end, has_gate ? tokens * b->F : 0, e);
	l.up = layout_take(&end, kind == STAGE_UP ? tokens * b->F : 0, e);
	l.bytes = end;
	return l;
}

static int64_t gate_acts_bytes(const struct stage_call *call)
{
	return layout_of(call, STAGE_GATE).bytes;
}

static int64_t up_acts_bytes(const struct stage_call *call)
{
	return layout_of(call, STAGE_UP).bytes;
}

/* The same as addresses. */
struct mlp_acts {
	dev_addr rstd, mean, norm, gate, up;
};

static struct mlp_acts acts_of(const struct stage_call *call)
{
	struct stage_call up = call_beside(call, STAGE_UP), gate = up;
	struct mlp_layout of_up = layout_of(&up, STAGE_UP), of_gate = of_up;

	if (call->block->has[ROLE_GATE_W]) {
		gate = call_beside(call, STAGE_GATE);
		of_gate = layout_of(&gate, STAGE_GATE);
	}
	return (struct mlp_acts){acts_at(&gate, of_gate.rstd), acts_at(&gate, of_gate.mean),
	        acts_at(&gate, of_gate.norm), acts_at(&gate, of_gate.gate), acts_at(&up, of_up.up)};
}

static const struct mlp_acts *acts(const struct stage_call *call)
{
	return call->layout;
}

/* Kept by `down`, with POST_NORM2_W. */
struct down_layout {
	int64_t branch;               /* [tokens, C] the MLP's output, before that norm */
	int64_t post_rstd, post_mean; /* F32 [tokens] */
	int64_t bytes;
};

static struct down_layout down_layout_of(const struct stage_call *call)
{
	int64_t rows = call_has(call, ROLE_POST_NORM2_W) ? call->tokens : 0, end = 0;
	struct down_layout l;

	l.branch = layout_take(&end, rows * call->c->C, call->element_bytes);
	l.post_rstd = layout_take(&end, rows, 4);
	l.post_mean = layout_take(&end, call->c->norm == NORM_LAYER ? rows : 0, 4);
	l.bytes = end;
	return l;
}

static int64_t down_acts_bytes(const struct stage_call *call)
{
	return down_layout_of(call).bytes;
}

/* act(gate) * up, then its gradient */
static int64_t down_scratch_bytes(const struct stage_call *call)
{
	int64_t end = 0;

	layout_take(&end, call->tokens * call->block->F, call->element_bytes);
	return end;
}

static struct norm_place norm2_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_NORM2_W, ROLE_NORM2_B, acts(call)->rstd, acts(call)->mean,
	        scratch_at(call, call->scratch.norm_zeros)};
}

static struct norm_place post_norm_of(const struct stage_call *call)
{
	struct down_layout l = down_layout_of(call);

	return (struct norm_place){ROLE_POST_NORM2_W, ROLE_POST_NORM2_B, acts_at(call, l.post_rstd),
	        acts_at(call, l.post_mean), scratch_at(call, call->scratch.norm_zeros)};
}

/* norm2's input. */
static dev_addr norm2_input(const struct stage_call *call)
{
	return call->c->parallel_residual ? call->memory->x : stream_in(call);
}

/* The input of gate and up. An MLP parallel to attention and without its own norm shares norm1. */
static dev_addr norm2_output(const struct stage_call *call)
{
	if (call_has(call, ROLE_NORM2_W))
		return acts(call)->norm;
	return call->c->parallel_residual ? attn_input(call) : norm2_input(call);
}

static void first_forward(struct stage_call *call)
{
	struct norm_place norm = norm2_of(call);

	if (call_has(call, ROLE_NORM2_W))
		norm_forward(call, &norm, norm2_output(call), norm2_input(call), call->tokens);
}

/* Takes the complete gradient of norm2's output on to the residual stream. With a parallel residual,
 * attention's backward still needs dx unchanged, so the MLP's part waits in scratch. */
static void first_backward(struct stage_call *call, dev_addr dnorm)
{
	const struct model_config *c = call->c;
	struct norm_place norm = norm2_of(call);
	dev_addr dx = call->memory->dx, residual = scratch_at(call, call->scratch.residual);
	int apart = c->parallel_residual;

	if (call_has(call, ROLE_NORM2_W))
		norm_backward(call, &norm, apart ? residual : dx, dnorm, norm2_input(call), call->tokens,
		        apart ? LINEAR_WRITE : LINEAR_ADD, scratch_at(call, call->scratch.norm_partial),
		        scratch_at(call, call->scratch.norm_sink));
	else if (apart)
		call_op(call, &(struct op){.kind = OP_COPY,
		                      .copy = {.dst = residual,
		                              .src = dnorm,
		                              .bytes = call->tokens * c->C * call->element_bytes}});
	else
		call_add(call, dx, dx, dnorm, call->tokens * c->C);
}

/* The gate, or its gradient. */
static void gate_scale(struct stage_call *call)
{
	if (call->block->scales.gate != 0)
		call_scale(call, acts(call)->gate, acts(call)->gate, call->tokens * call->block->F,
		        call->block->scales.gate);
}

static void gate_product(struct stage_call *call)
{
	struct linear gate = gate_of(call);

	linear_forward(call, &gate, rows_at(call, acts(call)->gate, call->block->F), call->dtype,
	        rows_at(call, norm2_output(call), call->c->C));
	gate_scale(call);
}

static void gate_forward(struct stage_call *call)
{
	struct mlp_acts a = acts_of(call);

	call->layout = &a;
	first_forward(call);
	gate_product(call);
}

static void up_forward(struct stage_call *call)
{
	struct mlp_acts a = acts_of(call);
	struct linear up = up_of(call);

	call->layout = &a;
	if (!call_has(call, ROLE_GATE_W))
		first_forward(call);
	if (call_has(call, ROLE_GATE_UP_W))
		gate_product(call);
	linear_forward(call, &up, rows_at(call, acts(call)->up, call->block->F), call->dtype,
	        rows_at(call, norm2_output(call), call->c->C));
}

/* Arguments that all four activation ops share. */
#define ACT_ARGUMENTS(call)                                                                                  \
	.count = (call)->tokens * (call)->block->F, .act = (call)->c->act, .dtype = (call)->dtype

static void activate(struct stage_call *call, dev_addr hidden)
{
	dev_addr gate = acts(call)->gate, up = acts(call)->up;

	if (block_is_gated(call->block))
		call_op(call, &(struct op){.kind = OP_GLU,
		                      .glu = {.out = hidden, .gate = gate, .up = up, ACT_ARGUMENTS(call)}});
	else
		call_op(call,
		        &(struct op){.kind = OP_ACT, .act = {.out = hidden, .x = up, ACT_ARGUMENTS(call)}});
}

/* The gradients of gate and up overwrite gate and up. */
static void activate_backward(struct stage_call *call, dev_addr dhidden)
{
	dev_addr gate = acts(call)->gate, up = acts(call)->up;

	if (block_is_gated(call->block))
		call_op(call, &(struct op){.kind = OP_GLU_GRAD,
		                      .glu_grad = {.dgate = gate,
		                              .dup = up,
		                              .dout = dhidden,
		                              .gate = gate,
		                              .up = up,
		                              ACT_ARGUMENTS(call)}});
	else
		call_op(call, &(struct op){.kind = OP_ACT_GRAD,
		                      .act_grad = {.dx = up, .dout = dhidden, .x = up, ACT_ARGUMENTS(call)}});
}

/* The stream + down(act(gate) * up) */
static void down_forward(struct stage_call *call)
{
	struct mlp_acts a = acts_of(call);
	struct linear down = down_of(call);
	struct norm_place post = post_norm_of(call);
	dev_addr hidden = own_scratch_at(call, 0),
	         branch = branch_at(call, &post, acts_at(call, down_layout_of(call).branch));

	if (dev_is_none(branch))
		return;
	call->layout = &a;
	activate(call, hidden);
	linear_forward(call, &down, rows_at(call, branch, call->c->C), call->dtype,
	        rows_at(call, hidden, call->block->F));
	branch_end(call, &post, branch);
}

static void down_backward(struct stage_call *call)
{
	struct mlp_acts a = acts_of(call);
	struct linear down = down_of(call);
	struct norm_place post = post_norm_of(call);
	dev_addr hidden = own_scratch_at(call, 0), branch = acts_at(call, down_layout_of(call).branch);
	struct rows dy = rows_at(call, branch_gradient(call, &post, branch), call->c->C);

	call->layout = &a;
	activate(call, hidden);
	linear_backward_weight(call, &down, dy, rows_at(call, hidden, call->block->F));
	linear_backward_input(
	        call, &down, rows_at(call, hidden, call->block->F), call->dtype, LINEAR_WRITE, dy);
	activate_backward(call, hidden);
}

static void gate_product_backward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	struct linear gate = gate_of(call);
	struct rows dy = rows_at(call, acts(call)->gate, call->block->F);
	dev_addr dnorm = scratch_at(call, call->scratch.dnorm);
	dev_addr rounded = scratch_at(call, call->scratch.dnorm_cast);

	gate_scale(call);
	linear_backward_weight(call, &gate, dy, rows_at(call, norm2_output(call), c->C));
	linear_backward_input(call, &gate, rows_at(call, dnorm, c->C), DTYPE_F32, LINEAR_ADD, dy);
	if (call->dtype != DTYPE_F32)
		call_cast(call, rounded, dnorm, call->tokens * c->C);
	first_backward(call, call->dtype == DTYPE_F32 ? dnorm : rounded);
}

static void gate_backward(struct stage_call *call)
{
	struct mlp_acts a = acts_of(call);

	call->layout = &a;
	gate_product_backward(call);
}

/* With a gate, the gate's part of the gradient is added in fp32 before the sum is rounded. */
static void up_product_backward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	struct linear up = up_of(call);
	struct rows dy = rows_at(call, acts(call)->up, call->block->F);
	int wide = block_is_gated(call->block) || call->dtype == DTYPE_F32;
	dev_addr dnorm = scratch_at(call, wide ? call->scratch.dnorm : call->scratch.dnorm_cast);

	linear_backward_weight(call, &up, dy, rows_at(call, norm2_output(call), c->C));
	linear_backward_input(
	        call, &up, rows_at(call, dnorm, c->C), wide ? DTYPE_F32 : call->dtype, LINEAR_WRITE, dy);
	if (call_has(call, ROLE_GATE_UP_W))
		gate_product_backward(call);
	else if (!call_has(call, ROLE_GATE_W))
		first_backward(call, dnorm);
}

static void up_backward(struct stage_call *call)
{
	struct mlp_acts a = acts_of(call);

	call->layout = &a;
	up_product_backward(call);
}

const struct stage_type stage_gate = {
        .forward = gate_forward, .backward = gate_backward, .acts_bytes = gate_acts_bytes};
const struct stage_type stage_up = {
        .forward = up_forward, .backward = up_backward, .acts_bytes = up_acts_bytes};
const struct stage_type stage_down = {.forward = down_forward,
        .backward = down_backward,
        .writes_stream = 1,
        .acts_bytes = down_acts_bytes,
        .scratch_bytes = down_scratch_bytes};
