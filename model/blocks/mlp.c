/* Forward and backward of the MLP: norm, gate, up, activation, down. */
#include "model/blocks/block.h"

/* Gate and up read norm2's output. down reads act(gate) * up, and backward computes that product again. A
 * fused tensor holds the gate's rows, then up's; the stage `up` then computes both. */
static struct linear gate_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;

	if (c->has[ROLE_GATE_UP_W])
		return (struct linear){ROLE_GATE_UP_W, ROLE_COUNT, c->F, c->C, 0, 0, 1};
	return (struct linear){ROLE_GATE_W, ROLE_GATE_B, c->F, c->C, c->weight_in_out, 0, 0};
}

static struct linear up_of(const struct stage_call *call)
{
	const struct model_config *c = call->c;

	if (c->has[ROLE_GATE_UP_W])
		return (struct linear){ROLE_GATE_UP_W, ROLE_COUNT, c->F, c->C, 0, c->F, 0};
	return (struct linear){ROLE_UP_W, ROLE_UP_B, c->F, c->C, c->weight_in_out, 0, 0};
}

static struct linear down_of(const struct stage_call *call)
{
	return (struct linear){
	        ROLE_DOWN_W, ROLE_DOWN_B, call->c->C, call->c->F, call->c->weight_in_out, 0, 0};
}

static struct norm_place norm2_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_NORM2_W, ROLE_NORM2_B, acts_at(call, call->acts.rstd2),
	        acts_at(call, call->acts.mean2), scratch_at(call, call->scratch.norm_zeros)};
}

static struct norm_place post_norm_of(const struct stage_call *call)
{
	return (struct norm_place){ROLE_POST_NORM2_W, ROLE_COUNT, acts_at(call, call->acts.post_rstd2),
	        DEV_NONE, scratch_at(call, call->scratch.norm_zeros)};
}

/* norm2's input. */
static dev_addr norm2_input(const struct stage_call *call)
{
	return call->c->parallel_residual ? call->memory->x : acts_at(call, call->acts.middle);
}

/* The input of gate and up. An MLP parallel to attention and without its own norm shares norm1. */
static dev_addr norm2_output(const struct stage_call *call)
{
	if (call->c->has[ROLE_NORM2_W])
		return acts_at(call, call->acts.norm2);
	return call->c->parallel_residual ? norm1_output(call) : norm2_input(call);
}

static void first_forward(struct stage_call *call)
{
	struct norm_place norm = norm2_of(call);

	if (call->c->has[ROLE_NORM2_W])
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

	if (c->has[ROLE_NORM2_W])
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

static void gate_product(struct stage_call *call)
{
	struct linear gate = gate_of(call);

	linear_forward(call, &gate, rows_at(call, acts_at(call, call->acts.gate), call->c->F), call->dtype,
	        rows_at(call, norm2_output(call), call->c->C));
}

void gate_forward(struct stage_call *call)
{
	first_forward(call);
	gate_product(call);
}

void up_forward(struct stage_call *call)
{
	struct linear up = up_of(call);

	if (!call->c->has[ROLE_GATE_W])
		first_forward(call);
	if (call->c->has[ROLE_GATE_UP_W])
		gate_product(call);
	linear_forward(call, &up, rows_at(call, acts_at(call, call->acts.up), call->c->F), call->dtype,
	        rows_at(call, norm2_output(call), call->c->C));
}

/* Arguments that all four activation ops share. */
#define ACT_ARGUMENTS(call)                                                                                  \
	.count = (call)->tokens * (call)->c->F, .act = (call)->c->act, .dtype = (call)->dtype

static void activate(struct stage_call *call, dev_addr hidden)
{
	dev_addr gate = acts_at(call, call->acts.gate), up = acts_at(call, call->acts.up);

	if (model_is_gated(call->c))
		call_op(call, &(struct op){.kind = OP_GLU,
		                      .glu = {.out = hidden, .gate = gate, .up = up, ACT_ARGUMENTS(call)}});
	else
		call_op(call,
		        &(struct op){.kind = OP_ACT, .act = {.out = hidden, .x = up, ACT_ARGUMENTS(call)}});
}

/* The gradients of gate and up overwrite gate and up. */
static void activate_backward(struct stage_call *call, dev_addr dhidden)
{
	dev_addr gate = acts_at(call, call->acts.gate), up = acts_at(call, call->acts.up);

	if (model_is_gated(call->c))
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

/* y = middle + down(act(gate) * up) */
void down_forward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	struct linear down = down_of(call);
	struct norm_place post = post_norm_of(call);
	dev_addr hidden = scratch_at(call, call->scratch.hidden), y = call->memory->y, branch = y;

	if (c->has[post.weight])
		branch = acts_at(call, call->acts.branch2);
	if (dev_is_none(branch))
		return;
	activate(call, hidden);
	linear_forward(call, &down, rows_at(call, branch, c->C), call->dtype, rows_at(call, hidden, c->F));
	if (c->has[post.weight])
		norm_forward(call, &post, dev_is_none(y) ? scratch_at(call, call->scratch.branch) : y, branch,
		        call->tokens);
	if (!dev_is_none(y) && c->residual_scale != 0)
		call_scale(call, y, y, call->tokens * c->C, c->residual_scale);
	if (!dev_is_none(y))
		call_add(call, y, y, acts_at(call, call->acts.middle), call->tokens * c->C);
}

void down_backward(struct stage_call *call)
{
	struct linear down = down_of(call);
	struct norm_place post = post_norm_of(call);
	dev_addr hidden = scratch_at(call, call->scratch.hidden);
	struct rows dy =
	        rows_at(call, branch_gradient(call, &post, acts_at(call, call->acts.branch2)), call->c->C);

	activate(call, hidden);
	linear_backward_weight(call, &down, dy, rows_at(call, hidden, call->c->F));
	linear_backward_input(call, &down, rows_at(call, hidden, call->c->F), call->dtype, LINEAR_WRITE, dy);
	activate_backward(call, hidden);
}

void gate_backward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	struct linear gate = gate_of(call);
	struct rows dy = rows_at(call, acts_at(call, call->acts.gate), c->F);
	dev_addr dnorm = scratch_at(call, call->scratch.dnorm);
	dev_addr rounded = scratch_at(call, call->scratch.dnorm_cast);

	linear_backward_weight(call, &gate, dy, rows_at(call, norm2_output(call), c->C));
	linear_backward_input(call, &gate, rows_at(call, dnorm, c->C), DTYPE_F32, LINEAR_ADD, dy);
	if (call->dtype != DTYPE_F32)
		call_cast(call, rounded, dnorm, call->tokens * c->C);
	first_backward(call, call->dtype == DTYPE_F32 ? dnorm : rounded);
}

/* With a gate, the gate's part of the gradient is added in fp32 before the sum is rounded. */
void up_backward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	struct linear up = up_of(call);
	struct rows dy = rows_at(call, acts_at(call, call->acts.up), c->F);
	int wide = model_is_gated(c) || call->dtype == DTYPE_F32;
	dev_addr dnorm = scratch_at(call, wide ? call->scratch.dnorm : call->scratch.dnorm_cast);

	linear_backward_weight(call, &up, dy, rows_at(call, norm2_output(call), c->C));
	linear_backward_input(
	        call, &up, rows_at(call, dnorm, c->C), wide ? DTYPE_F32 : call->dtype, LINEAR_WRITE, dy);
	if (c->has[ROLE_GATE_UP_W])
		gate_backward(call);
	else if (!c->has[ROLE_GATE_W])
		first_backward(call, dnorm);
}
