/* The MLP: norm, gate, up, activation, down; and back. */
#include "model/blocks/block.h"

/* Gate and up read norm2's output; down reads act(gate) * up, which is computed anew in backward. */
static struct linear gate_of(const struct stage_call *call)
{
	return (struct linear){ROLE_GATE_W, ROLE_GATE_B, call->c->F, call->c->C, call->c->weight_in_out};
}

static struct linear up_of(const struct stage_call *call)
{
	return (struct linear){ROLE_UP_W, ROLE_UP_B, call->c->F, call->c->C, call->c->weight_in_out};
}

static struct linear down_of(const struct stage_call *call)
{
	return (struct linear){ROLE_DOWN_W, ROLE_DOWN_B, call->c->C, call->c->F, call->c->weight_in_out};
}

static struct rows rows_at(const struct stage_call *call, dev_addr base, int64_t stride)
{
	return (struct rows){base, call->tokens, stride};
}

static struct norm_place norm2_of(const struct stage_call *call)
{
	return (struct norm_place){
	        ROLE_NORM2_W, ROLE_NORM2_B, acts_at(call, call->acts.rstd2), acts_at(call, call->acts.mean2)};
}

/* What norm2 normalises. */
static dev_addr norm2_input(const struct stage_call *call)
{
	return call->c->parallel_residual ? call->memory->x : acts_at(call, call->acts.middle);
}

static void first_forward(struct stage_call *call)
{
	struct norm_place norm = norm2_of(call);

	norm_forward(call, &norm, acts_at(call, call->acts.norm2), norm2_input(call), call->tokens);
}

/* The gradient of norm2's output is complete: on to the residual stream. With a parallel residual dx is also
 * what attention's projection gets, so norm2's part waits in scratch. */
static void first_backward(struct stage_call *call, dev_addr dnorm)
{
	struct norm_place norm = norm2_of(call);
	int apart = call->c->parallel_residual;

	norm_backward(call, &norm, apart ? scratch_at(call, call->scratch.residual) : call->memory->dx, dnorm,
	        norm2_input(call), call->tokens, apart ? LINEAR_WRITE : LINEAR_ADD,
	        scratch_at(call, call->scratch.norm_partial), scratch_at(call, call->scratch.norm_sink));
}

void gate_forward(struct stage_call *call)
{
	struct linear gate = gate_of(call);

	first_forward(call);
	linear_forward(call, &gate, rows_at(call, acts_at(call, call->acts.gate), call->c->F), call->dtype,
	        rows_at(call, acts_at(call, call->acts.norm2), call->c->C));
}

void up_forward(struct stage_call *call)
{
	struct linear up = up_of(call);

	if (!model_is_gated(call->c))
		first_forward(call);
	linear_forward(call, &up, rows_at(call, acts_at(call, call->acts.up), call->c->F), call->dtype,
	        rows_at(call, acts_at(call, call->acts.norm2), call->c->C));
}

static void activate(struct stage_call *call, dev_addr hidden)
{
	dev_addr gate = acts_at(call, call->acts.gate), up = acts_at(call, call->acts.up);
	int64_t count = call->tokens * call->c->F;

	if (model_is_gated(call->c))
		call_op(call, &(struct op){.kind = OP_GLU,
		                      .glu = {.out = hidden,
		                              .gate = gate,
		                              .up = up,
		                              .count = count,
		                              .act = call->c->act,
		                              .dtype = call->dtype}});
	else
		call_op(call, &(struct op){.kind = OP_ACT,
		                      .act = {.out = hidden,
		                              .x = up,
		                              .count = count,
		                              .act = call->c->act,
		                              .dtype = call->dtype}});
}

/* The gradients of gate and up replace them. */
static void activate_backward(struct stage_call *call, dev_addr dhidden)
{
	dev_addr gate = acts_at(call, call->acts.gate), up = acts_at(call, call->acts.up);
	int64_t count = call->tokens * call->c->F;

	if (model_is_gated(call->c))
		call_op(call, &(struct op){.kind = OP_GLU_GRAD,
		                      .glu_grad = {.dgate = gate,
		                              .dup = up,
		                              .dout = dhidden,
		                              .gate = gate,
		                              .up = up,
		                              .count = count,
		                              .act = call->c->act,
		                              .dtype = call->dtype}});
	else
		call_op(call, &(struct op){.kind = OP_ACT_GRAD,
		                      .act_grad = {.dx = up,
		                              .dout = dhidden,
		                              .x = up,
		                              .count = count,
		                              .act = call->c->act,
		                              .dtype = call->dtype}});
}

/* y = middle + down(act(gate) * up) */
void down_forward(struct stage_call *call)
{
	struct linear down = down_of(call);
	dev_addr hidden = scratch_at(call, call->scratch.hidden), y = call->memory->y;

	if (dev_is_none(y))
		return;
	activate(call, hidden);
	linear_forward(
	        call, &down, rows_at(call, y, call->c->C), call->dtype, rows_at(call, hidden, call->c->F));
	call_add(call, y, y, acts_at(call, call->acts.middle), call->tokens * call->c->C);
}

void down_backward(struct stage_call *call)
{
	struct linear down = down_of(call);
	dev_addr hidden = scratch_at(call, call->scratch.hidden);
	struct rows dy = rows_at(call, call->memory->dx, call->c->C);

	activate(call, hidden);
	linear_backward_weight(call, &down, dy, rows_at(call, hidden, call->c->F));
	linear_backward_input(call, &down, rows_at(call, hidden, call->c->F), call->dtype, LINEAR_WRITE, dy);
	activate_backward(call, hidden);
}

/* With a gate its part is added in fp32 before the sum is rounded. */
void up_backward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	struct linear up = up_of(call);
	struct rows dy = rows_at(call, acts_at(call, call->acts.up), c->F);
	int wide = model_is_gated(c) || call->dtype == DTYPE_F32;
	dev_addr dnorm = scratch_at(call, wide ? call->scratch.dnorm : call->scratch.dnorm_cast);

	linear_backward_weight(call, &up, dy, rows_at(call, acts_at(call, call->acts.norm2), c->C));
	linear_backward_input(
	        call, &up, rows_at(call, dnorm, c->C), wide ? DTYPE_F32 : call->dtype, LINEAR_WRITE, dy);
	if (!model_is_gated(c))
		first_backward(call, dnorm);
}

void gate_backward(struct stage_call *call)
{
	const struct model_config *c = call->c;
	struct linear gate = gate_of(call);
	struct rows dy = rows_at(call, acts_at(call, call->acts.gate), c->F);
	dev_addr dnorm = scratch_at(call, call->scratch.dnorm);
	dev_addr rounded = scratch_at(call, call->scratch.dnorm_cast);

	linear_backward_weight(call, &gate, dy, rows_at(call, acts_at(call, call->acts.norm2), c->C));
	linear_backward_input(call, &gate, rows_at(call, dnorm, c->C), DTYPE_F32, LINEAR_ADD, dy);
	if (call->dtype != DTYPE_F32)
		call_cast(call, rounded, dnorm, call->tokens * c->C);
	first_backward(call, call->dtype == DTYPE_F32 ? dnorm : rounded);
}
