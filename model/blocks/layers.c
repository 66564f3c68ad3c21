/* Queues linear layers, norms and other ops of a stage call. */
#include "model/blocks/block.h"

/* ---- one call ---- */

void call_op(struct stage_call *call, const struct op *op)
{
	if (!call->err)
		call->err = stream_op(call->stream, op);
}

dev_addr acts_at(const struct stage_call *call, int64_t offset_bytes)
{
	return dev_at(call->memory->acts, offset_bytes);
}

dev_addr scratch_at(const struct stage_call *call, int64_t offset_bytes)
{
	return dev_at(call->memory->scratch, offset_bytes);
}

static dev_addr address_of(const struct stage_call *call, enum tensor_role role, const dev_addr *table)
{
	int tensor;

	if (role == ROLE_COUNT)
		return DEV_NONE;
	if (role == ROLE_HEAD_W && call->c->tied)
		role = ROLE_EMBED;
	tensor = model_tensor_of(call->model, role, call->layer);
	return tensor < 0 ? DEV_NONE : table[tensor];
}

dev_addr weight_of(const struct stage_call *call, enum tensor_role role)
{
	return address_of(call, role, call->memory->weight);
}

dev_addr grad_of(const struct stage_call *call, enum tensor_role role)
{
	return address_of(call, role, call->memory->grad);
}

void call_add(struct stage_call *call, dev_addr dst, dev_addr a, dev_addr b, int64_t count)
{
	call_op(call, &(struct op){.kind = OP_ADD,
	                      .add = {.dst = dst, .a = a, .b = b, .count = count, .dtype = call->dtype}});
}

void call_scale(struct stage_call *call, dev_addr dst, dev_addr src, int64_t count, double factor)
{
	call_op(call, &(struct op){.kind = OP_SCALE,
	                      .scale = {.dst = dst,
	                              .src = src,
	                              .count = count,
	                              .factor = factor,
	                              .dtype = call->dtype}});
}

void call_cast(struct stage_call *call, dev_addr dst, dev_addr src, int64_t count)
{
	call_op(call, &(struct op){.kind = OP_CAST,
	                      .cast = {.dst = dst,
	                              .src = src,
	                              .count = count,
	                              .dst_dtype = call->dtype,
	                              .src_dtype = DTYPE_F32}});
}

/* ---- linear layers ---- */

/* The address of the matrix within its tensor, or of the bias. */
static dev_addr matrix_at(const struct linear *linear, dev_addr tensor, int64_t element_bytes)
{
	return dev_is_none(tensor) ? tensor : dev_at(tensor, linear->first * linear->in * element_bytes);
}

static dev_addr bias_at(const struct linear *linear, dev_addr tensor, int64_t element_bytes)
{
	return dev_is_none(tensor) ? tensor : dev_at(tensor, linear->first * element_bytes);
}

void linear_forward(struct stage_call *call, const struct linear *linear, struct rows y, enum dtype y_dtype,
        struct rows x)
{
	call_op(call,
	        &(struct op){.kind = OP_MATMUL,
	                .matmul = {.c = y.base,
	                        .a = x.base,
	                        .b = matrix_at(linear, weight_of(call, linear->weight), call->element_bytes),
	                        .bias = bias_at(linear, weight_of(call, linear->bias), call->element_bytes),
	                        .m = y.count,
	                        .n = linear->out,
	                        .k = linear->in,
	                        .a_stride = x.stride,
	                        .b_stride = linear->in_out ? linear->out : linear->in,
	                        .c_stride = y.stride,
	                        .b_layout = linear->in_out ? MATMUL_NORMAL : MATMUL_TRANSPOSED,
	                        .ab_dtype = call->dtype,
	                        .c_dtype = y_dtype}});
}

void linear_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, enum linear_sum sum, struct rows dy)
{
	call_op(call,
	        &(struct op){.kind = OP_MATMUL,
	                .matmul = {.c = dx.base,
	                        .a = dy.base,
	                        .b = matrix_at(linear, weight_of(call, linear->weight), call->element_bytes),
	                        .m = dy.count,
	                        .n = linear->in,
	                        .k = linear->out,
	                        .a_stride = dy.stride,
	                        .b_stride = linear->in_out ? linear->out : linear->in,
	                        .c_stride = dx.stride,
	                        .b_layout = linear->in_out ? MATMUL_TRANSPOSED : MATMUL_NORMAL,
	                        .ab_dtype = call->dtype,
	                        .c_dtype = dx_dtype,
	                        .accumulate = sum == LINEAR_ADD}});
}

void linear_backward_weight(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x)
{
	struct rows a = linear->in_out ? x : dy, b = linear->in_out ? dy : x;
	int64_t m = linear->in_out ? linear->in : linear->out, n = linear->in_out ? linear->out : linear->in;
	dev_addr weight = grad_of(call, linear->weight), bias = grad_of(call, linear->bias);

	if (!dev_is_none(weight))
		call_op(call, &(struct op){.kind = OP_MATMUL,
		                      .matmul = {.c = matrix_at(linear, weight, 4),
		                              .a = a.base,
		                              .b = b.base,
		                              .m = m,
		                              .n = n,
		                              .k = dy.count,
		                              .a_stride = a.stride,
		                              .b_stride = b.stride,
		                              .c_stride = n,
		                              .a_layout = MATMUL_TRANSPOSED,
		                              .ab_dtype = call->dtype,
		                              .c_dtype = DTYPE_F32,
		                              .accumulate = !call->writes_gradients}});
	if (!dev_is_none(bias))
		call_op(call, &(struct op){.kind = OP_COLSUM,
		                      .colsum = {.sum = bias_at(linear, bias, 4),
		                              .x = dy.base,
		                              .rows = dy.count,
		                              .cols = linear->out,
		                              .x_stride = dy.stride,
		                              .dtype = call->dtype}});
}

/* ---- norms ---- */

int64_t norm_sink_count(const struct model *model)
{
	int64_t most = model->frozen_norm_count;

	if (model->config.norm_plain)
		return norm_zero_count(&model->config);
	return most ? model->config.C + (most > model->config.C ? most : model->config.C) : 0;
}

dev_addr norm_grad_of(const struct stage_call *call, enum tensor_role role, dev_addr sink)
{
	dev_addr grad = grad_of(call, role);

	if (call->c->norm_plain && role != ROLE_COUNT && role_facts[role].kind == KIND_NORM)
		return sink;
	return !dev_is_none(grad) || dev_is_none(weight_of(call, role)) ? grad : sink;
}

int64_t norm_zero_count(const struct model_config *c)
{
	return !c->norm_plain ? 0 : c->has[ROLE_Q_NORM_W] && c->D > c->C ? c->D : c->C;
}

dev_addr norm_weight_of(struct stage_call *call, enum tensor_role role, dev_addr zeros)
{
	int64_t count = norm_zero_count(call->c);

	if (!count)
		return weight_of(call, role);
	call_op(call,
	        &(struct op){.kind = OP_FILL, .fill = {.dst = zeros, .bytes = count * call->element_bytes}});
	return zeros;
}

void norm_forward(
        struct stage_call *call, const struct norm_place *norm, dev_addr y, dev_addr x, int64_t rows)
{
	int is_layer = call->c->norm == NORM_LAYER;
	dev_addr weight = norm_weight_of(call, norm->weight, norm->zeros);

	call_op(call, &(struct op){.kind = is_layer ? OP_LAYERNORM : OP_RMSNORM,
	                      .norm = {.y = y,
	                              .x = x,
	                              .weight = weight,
	                              .bias = is_layer ? weight_of(call, norm->bias) : DEV_NONE,
	                              .rstd = norm->rstd,
	                              .mean = is_layer ? norm->mean : DEV_NONE,
	                              .rows = rows,
	                              .groups = 1,
	                              .cols = call->c->C,
	                              .x_stride = call->c->C,
	                              .y_stride = call->c->C,
	                              .epsilon = call->c->norm_epsilon,
	                              .weight_offset = call->c->norm_weight_offset,
	                              .dtype = call->dtype}});
}

void norm_backward(struct stage_call *call, const struct norm_place *norm, dev_addr dx, dev_addr dy,
        dev_addr x, int64_t rows, enum linear_sum sum, dev_addr partial, dev_addr sink)
{
	int is_layer = call->c->norm == NORM_LAYER;
	dev_addr weight = norm_weight_of(call, norm->weight, norm->zeros);

	call_op(call, &(struct op){.kind = is_layer ? OP_LAYERNORM_GRAD : OP_RMSNORM_GRAD,
	                      .norm_grad = {.dx = dx,
	                              .dweight = norm_grad_of(call, norm->weight, sink),
	                              .dbias = is_layer ? norm_grad_of(call, norm->bias,
	                                                          dev_at(sink, 4 * call->c->C))
	                                                : DEV_NONE,
	                              .dy = dy,
	                              .x = x,
	                              .weight = weight,
	                              .rstd = norm->rstd,
	                              .mean = is_layer ? norm->mean : DEV_NONE,
	                              .scratch = partial,
	                              .rows = rows,
	                              .groups = 1,
	                              .cols = call->c->C,
	                              .x_stride = call->c->C,
	                              .y_stride = call->c->C,
	                              .weight_offset = call->c->norm_weight_offset,
	                              .dtype = call->dtype,
	                              .accumulate_dx = sum == LINEAR_ADD}});
}

dev_addr branch_gradient(struct stage_call *call, const struct norm_place *post, dev_addr x)
{
	dev_addr branch = scratch_at(call, call->scratch.branch), dy = call->memory->dx;

	if (call->c->residual_scale != 0) {
		call_scale(call, branch, dy, call->tokens * call->c->C, call->c->residual_scale);
		dy = branch;
	}
	if (!call->c->has[post->weight])
		return dy;
	norm_backward(call, post, branch, dy, x, call->tokens, LINEAR_WRITE,
	        scratch_at(call, call->scratch.norm_partial), scratch_at(call, call->scratch.norm_sink));
	return branch;
}
