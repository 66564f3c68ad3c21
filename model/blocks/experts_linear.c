/* The products of rows with the matrices of their experts, as the model stores these, and biases. */
#include "model/blocks/experts.h"

struct experts_linear experts_gate_up_of(const struct stage_call *call)
{
	return (struct experts_linear){
	        call_has(call, ROLE_EXPERTS_UP_W) ? ROLE_EXPERTS_UP_W : ROLE_EXPERTS_GATE_UP_W,
	        ROLE_EXPERTS_GATE_UP_B, experts_gate_up_cols(call), experts_cols(call)};
}

struct experts_linear experts_down_of(const struct stage_call *call)
{
	return (struct experts_linear){
	        ROLE_EXPERTS_DOWN_W, ROLE_EXPERTS_DOWN_B, experts_cols(call), call->block->experts.F};
}

/* Whether the stage reads the matrices as [in, out]. */
static int is_in_out(const struct stage_call *call, const struct experts_linear *linear)
{
	int tensor = model_tensor_of(call->model, linear->weight, call->layer);

	return call->block->experts.in_out != model_tensor_is_turned(&call->model->tensors[tensor]);
}

/* The product of rows of `in` elements with a matrix [in, out] or, with is_turned, [out, in]. */
static void product(struct stage_call *call, struct op_grouped op, int is_turned)
{
	op.first = experts_first(call);
	op.rows = experts_rows(call);
	op.experts = experts_share_of(call).count;
	op.of_experts = call->block->experts.count;
	op.of = GROUPED_ROWS;
	op.b_layout = is_turned ? MATMUL_TRANSPOSED : MATMUL_NORMAL;
	op.ab_dtype = op.c_dtype = call->dtype;
	call_op(call, &(struct op){.kind = OP_GROUPED, .grouped = op});
}

void experts_rows_product(struct stage_call *call, dev_addr c, dev_addr a, dev_addr b, int64_t n, int64_t k,
        enum matmul_layout b_layout, int adds)
{
	product(call, (struct op_grouped){.c = c, .a = a, .b = b, .n = n, .k = k, .accumulate = adds},
	        b_layout == MATMUL_TRANSPOSED);
}

void experts_weights_product(
        struct stage_call *call, dev_addr grad, dev_addr dy, int64_t m, dev_addr x, int64_t n)
{
	if (!dev_is_none(grad))
		call_op(call, &(struct op){.kind = OP_GROUPED,
		                      .grouped = {.c = grad,
		                              .a = dy,
		                              .b = x,
		                              .first = experts_first(call),
		                              .rows = experts_rows(call),
		                              .experts = experts_share_of(call).count,
		                              .of_experts = call->block->experts.count,
		                              .m = m,
		                              .n = n,
		                              .of = GROUPED_WEIGHTS,
		                              .ab_dtype = call->dtype,
		                              .c_dtype = DTYPE_F32,
		                              .accumulate = !call->writes_gradients}});
}

void experts_linear_forward(
        struct stage_call *call, const struct experts_linear *linear, dev_addr y, dev_addr x)
{
	product(call,
	        (struct op_grouped){.c = y,
	                .a = x,
	                .b = experts_weight_of(call, linear->weight),
	                .bias = experts_weight_of(call, linear->bias),
	                .n = linear->out,
	                .k = linear->in},
	        !is_in_out(call, linear));
}

void experts_linear_backward_input(
        struct stage_call *call, const struct experts_linear *linear, dev_addr dx, dev_addr dy)
{
	product(call,
	        (struct op_grouped){.c = dx,
	                .a = dy,
	                .b = experts_weight_of(call, linear->weight),
	                .n = linear->in,
	                .k = linear->out},
	        is_in_out(call, linear));
}

void experts_linear_backward_weight(
        struct stage_call *call, const struct experts_linear *linear, dev_addr dy, dev_addr x)
{
	dev_addr grad = experts_grad_of(call, linear->weight),
	         bias_grad = experts_grad_of(call, linear->bias);

	if (call->block->experts.in_out)
		experts_weights_product(call, grad, x, linear->in, dy, linear->out);
	else
		experts_weights_product(call, grad, dy, linear->out, x, linear->in);
	if (!dev_is_none(bias_grad))
		call_op(call, &(struct op){.kind = OP_GROUPED_COLSUM,
		                      .grouped_colsum = {.sum = bias_grad,
		                              .x = dy,
		                              .first = experts_first(call),
		                              .rows = experts_rows(call),
		                              .experts = experts_share_of(call).count,
		                              .cols = linear->out,
		                              .dtype = call->dtype}});
}
