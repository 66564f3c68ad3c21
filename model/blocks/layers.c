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

/* y (+)= op(a) op(b), shapes as in op_matmul. */
struct product {
	struct rows y;
	int64_t n, k;
	enum dtype y_dtype;
	int adds;
	dev_addr a, b, bias;
	int64_t a_stride, b_stride;
	enum matmul_layout a_layout, b_layout;
};

static void call_product(struct stage_call *call, const struct product *p)
{
	call_op(call, &(struct op){.kind = OP_MATMUL,
	                      .matmul = {.c = p->y.base,
	                              .a = p->a,
	                              .b = p->b,
	                              .bias = p->bias,
	                              .m = p->y.count,
	                              .n = p->n,
	                              .k = p->k,
	                              .a_stride = p->a_stride,
	                              .b_stride = p->b_stride,
	                              .c_stride = p->y.stride,
	                              .a_layout = p->a_layout,
	                              .b_layout = p->b_layout,
	                              .ab_dtype = call->dtype,
	                              .c_dtype = p->y_dtype,
	                              .accumulate = p->adds}});
}

/* ---- adapters ---- */

/* A [rank, in], and the rows of B [out, rank] for this matrix. */
struct adapter {
	int64_t rank;
	double scale;
	dev_addr a, b, a_grad, b_grad;
};

static int adapter_find(struct adapter *p, const struct stage_call *call, const struct linear *linear)
{
	enum tensor_role a = role_adapter(linear->weight);
	int64_t first;

	if (a == ROLE_COUNT || !call->c->has[a] || !call->c->block[call->layer].adapter[a].rank)
		return 0;
	*p = (struct adapter){call->c->block[call->layer].adapter[a].rank,
	        call->c->block[call->layer].adapter[a].scale, weight_of(call, a), weight_of(call, a + 1),
	        grad_of(call, a), grad_of(call, a + 1)};
	first = linear->first * p->rank;
	p->b = dev_at(p->b, first * call->element_bytes);
	if (!dev_is_none(p->b_grad))
		p->b_grad = dev_at(p->b_grad, first * 4);
	return 1;
}

/* s x A^T, in scratch */
static dev_addr adapter_inner(
        struct stage_call *call, const struct linear *linear, const struct adapter *p, struct rows x)
{
	dev_addr inner = scratch_at(call, call->scratch.adapter);

	call_product(call, &(struct product){.y = {inner, x.count, p->rank},
	                           .n = p->rank,
	                           .k = linear->in,
	                           .y_dtype = call->dtype,
	                           .a = x.base,
	                           .a_stride = x.stride,
	                           .b = p->a,
	                           .b_stride = linear->in,
	                           .b_layout = MATMUL_TRANSPOSED});
	call_scale(call, inner, inner, x.count * p->rank, p->scale);
	return inner;
}

/* s dy B, in scratch: the gradient of A x */
static dev_addr adapter_inner_grad(
        struct stage_call *call, const struct linear *linear, const struct adapter *p, struct rows dy)
{
	dev_addr inner = scratch_at(call, call->scratch.adapter_grad);

	call_product(call, &(struct product){.y = {inner, dy.count, p->rank},
	                           .n = p->rank,
	                           .k = linear->out,
	                           .y_dtype = call->dtype,
	                           .a = dy.base,
	                           .a_stride = dy.stride,
	                           .b = p->b,
	                           .b_stride = p->rank});
	call_scale(call, inner, inner, dy.count * p->rank, p->scale);
	return inner;
}

static void adapter_forward(struct stage_call *call, const struct linear *linear, struct rows y,
        enum dtype y_dtype, struct rows x)
{
	struct adapter p;

	if (!adapter_find(&p, call, linear))
		return;
	call_product(call, &(struct product){.y = y,
	                           .n = linear->out,
	                           .k = p.rank,
	                           .y_dtype = y_dtype,
	                           .adds = 1,
	                           .a = adapter_inner(call, linear, &p, x),
	                           .a_stride = p.rank,
	                           .b = p.b,
	                           .b_stride = p.rank,
	                           .b_layout = MATMUL_TRANSPOSED});
}

static void adapter_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, struct rows dy)
{
	struct adapter p;

	if (!adapter_find(&p, call, linear))
		return;
	call_product(call, &(struct product){.y = dx,
	                           .n = linear->in,
	                           .k = p.rank,
	                           .y_dtype = dx_dtype,
	                           .adds = 1,
	                           .a = adapter_inner_grad(call, linear, &p, dy),
	                           .a_stride = p.rank,
	                           .b = p.a,
	                           .b_stride = linear->in});
}

/* Of A and B, those that train. A [rank, in] of a fused tensor gets a part of its gradient from each of the
 * tensor's matrices. */
static void adapter_backward_weight(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x)
{
	struct adapter p;

	if (!adapter_find(&p, call, linear))
		return;
	if (!dev_is_none(p.b_grad))
		call_product(call, &(struct product){.y = {p.b_grad, linear->out, p.rank},
		                           .n = p.rank,
		                           .k = dy.count,
		                           .y_dtype = DTYPE_F32,
		                           .adds = !call->writes_gradients,
		                           .a = dy.base,
		                           .a_stride = dy.stride,
		                           .a_layout = MATMUL_TRANSPOSED,
		                           .b = adapter_inner(call, linear, &p, x),
		                           .b_stride = p.rank});
	if (!dev_is_none(p.a_grad))
		call_product(call, &(struct product){.y = {p.a_grad, p.rank, linear->in},
		                           .n = linear->in,
		                           .k = dy.count,
		                           .y_dtype = DTYPE_F32,
		                           .adds = !call->writes_gradients || linear->is_later,
		                           .a = adapter_inner_grad(call, linear, &p, dy),
		                           .a_stride = p.rank,
		                           .a_layout = MATMUL_TRANSPOSED,
		                           .b = x.base,
		                           .b_stride = x.stride});
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
	call_product(
	        call, &(struct product){.y = y,
	                      .n = linear->out,
	                      .k = linear->in,
	                      .y_dtype = y_dtype,
	                      .a = x.base,
	                      .a_stride = x.stride,
	                      .b = matrix_at(linear, weight_of(call, linear->weight), call->element_bytes),
	                      .b_stride = linear->in_out ? linear->out : linear->in,
	                      .b_layout = linear->in_out ? MATMUL_NORMAL : MATMUL_TRANSPOSED,
	                      .bias = bias_at(linear, weight_of(call, linear->bias), call->element_bytes)});
	adapter_forward(call, linear, y, y_dtype, x);
}

void linear_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, enum linear_sum sum, struct rows dy)
{
	call_product(
	        call, &(struct product){.y = dx,
	                      .n = linear->in,
	                      .k = linear->out,
	                      .y_dtype = dx_dtype,
	                      .adds = sum == LINEAR_ADD,
	                      .a = dy.base,
	                      .a_stride = dy.stride,
	                      .b = matrix_at(linear, weight_of(call, linear->weight), call->element_bytes),
	                      .b_stride = linear->in_out ? linear->out : linear->in,
	                      .b_layout = linear->in_out ? MATMUL_TRANSPOSED : MATMUL_NORMAL});
	adapter_backward_input(call, linear, dx, dx_dtype, dy);
}

void linear_backward_weight(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x)
{
	struct rows a = linear->in_out ? x : dy, b = linear->in_out ? dy : x;
	int64_t m = linear->in_out ? linear->in : linear->out, n = linear->in_out ? linear->out : linear->in;
	dev_addr weight = grad_of(call, linear->weight), bias = grad_of(call, linear->bias);

	if (!dev_is_none(weight))
		call_product(call, &(struct product){.y = {matrix_at(linear, weight, 4), m, n},
		                           .n = n,
		                           .k = dy.count,
		                           .y_dtype = DTYPE_F32,
		                           .adds = !call->writes_gradients,
		                           .a = a.base,
		                           .a_stride = a.stride,
		                           .a_layout = MATMUL_TRANSPOSED,
		                           .b = b.base,
		                           .b_stride = b.stride});
	if (!dev_is_none(bias))
		call_op(call, &(struct op){.kind = OP_COLSUM,
		                      .colsum = {.sum = bias_at(linear, bias, 4),
		                              .x = dy.base,
		                              .rows = dy.count,
		                              .cols = linear->out,
		                              .x_stride = dy.stride,
		                              .dtype = call->dtype}});
	adapter_backward_weight(call, linear, dy, x);
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
