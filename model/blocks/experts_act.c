/* What lies between the products of experts: an activation of gate and up, or of up alone. */
#include "model/blocks/experts.h"

/* Gates and ups, in activations or, of a part, in scratch. */
dev_addr experts_gate_up_at(const struct stage_call *call)
{
	return experts_are_divided(call) ? own_scratch_at(call, experts_scratch_of(call).gate_up)
	                                 : acts_at(call, layout(call)->gate_up);
}

static dev_addr up_at(const struct stage_call *call)
{
	int64_t up = experts_up_at(call);

	return up ? dev_at(experts_gate_up_at(call), up * call->element_bytes) : DEV_NONE;
}

/* The arguments of op_gate: gate and up lie side by side in rows of gate_up. Without a gate it has only what
 * the activation reads. */
#define GATE_ARGUMENTS(call)                                                                                 \
	.x = up_at(call), .gate = experts_gate_up_at(call), .rows = experts_rows(call), .groups = 1,         \
	.cols = (call)->block->experts.F, .x_stride = experts_gate_up_cols(call),                            \
	.y_stride = (call)->block->experts.F, .gate_stride = experts_gate_up_cols(call),                     \
	.gate_group_stride = experts_gate_up_cols(call), .act = (call)->c->act, .dtype = (call)->dtype,      \
	.range = experts_range(call)

/* The same of op_glu_limited, which reads gates and ups by turns. */
#define LIMITED_ARGUMENTS(call)                                                                              \
	.gate_up = experts_gate_up_at(call), .rows = experts_rows(call), .cols = (call)->block->experts.F,   \
	.alpha = (call)->block->experts.alpha, .limit = (call)->block->experts.limit, .order = GLU_BY_TURNS, \
	.dtype = (call)->dtype, .range = experts_range(call)

void experts_activate(struct stage_call *call, dev_addr hidden)
{
	if (call->block->experts.limit != 0)
		call_op(call, &(struct op){.kind = OP_GLU_LIMITED,
		                      .glu_limited = {LIMITED_ARGUMENTS(call), .out = hidden}});
	else
		call_op(call, &(struct op){.kind = OP_GATE, .gate = {GATE_ARGUMENTS(call), .y = hidden}});
}

void experts_activate_backward(struct stage_call *call, dev_addr dhidden)
{
	dev_addr gate = experts_gate_up_at(call);

	if (call->block->experts.limit != 0)
		call_op(call, &(struct op){.kind = OP_GLU_LIMITED_GRAD,
		                      .glu_limited_grad = {
		                              LIMITED_ARGUMENTS(call), .dgate_up = gate, .dout = dhidden}});
	else
		call_op(call, &(struct op){.kind = OP_GATE_GRAD,
		                      .gate_grad = {GATE_ARGUMENTS(call), .dgate = gate, .dx = up_at(call),
		                              .dy = dhidden}});
}
