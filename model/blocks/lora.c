/* The products of adapters (LoRA) beside those of their matrices. */
#include "model/blocks/linear.h"

#include "device/noise.h"

/* A [rank, in], and the rows of B [out, rank] for this matrix. */
struct adapter {
	int64_t rank;
	double scale;
	dev_addr a, b, a_grad, b_grad;
	uint64_t module; /* its number for noise; 0: nothing is dropped */
};

static int adapter_find(struct adapter *p, const struct stage_call *call, const struct linear *linear)
{
	enum tensor_role a = role_adapter(linear->weight);
	int64_t first;

	if (a == ROLE_COUNT || !call->c->adapter_rank || !call->block->adapter[a].rank)
		return 0;
	*p = (struct adapter){call->block->adapter[a].rank, call->block->adapter[a].scale, weight_of(call, a),
	        weight_of(call, a + 1), grad_of(call, a), grad_of(call, a + 1), 0};
	first = linear->first * p->rank;
	p->b = dev_at(p->b, first * call->element_bytes);
	if (!dev_is_none(p->b_grad))
		p->b_grad = dev_at(p->b_grad, first * 4);
	if (call->c->adapter_dropout > 0 && !dev_is_none(call->batch->noise))
		p->module =
		        noise_module(call->model->tensors[model_tensor_of(call->model, a, call->layer)].name);
	return 1;
}

/* Rows without the elements that the module drops, those that stay divided by their share. */
static void drop(struct stage_call *call, const struct adapter *p, int64_t columns, struct rows to,
        enum dtype to_dtype, int adds, struct rows from)
{
	call_op(call, &(struct op){.kind = OP_DROPOUT,
	                      .dropout = {.dst = to.base,
	                              .src = from.base,
	                              .key = call->batch->noise,
	                              .rows = from.count,
	                              .cols = columns,
	                              .dst_stride = to.stride,
	                              .src_stride = from.stride,
	                              .module = p->module,
	                              .share = call->c->adapter_dropout,
	                              .accumulate = adds,
	                              .dst_dtype = to_dtype,
	                              .src_dtype = call->dtype}});
}

static struct rows dropped_rows(const struct stage_call *call, const struct linear *linear, int64_t count)
{
	return (struct rows){scratch_at(call, call->scratch.dropped), count, linear->in};
}

/* What A multiplies: x, or what dropout leaves of it, in scratch. */
static struct rows adapter_input(
        struct stage_call *call, const struct linear *linear, const struct adapter *p, struct rows x)
{
	struct rows left = dropped_rows(call, linear, x.count);

	if (!p->module)
		return x;
	drop(call, p, linear->in, left, call->dtype, 0, x);
	return left;
}

/* s x A^T, in scratch; x is what adapter_input gave */
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

void adapter_forward(struct stage_call *call, const struct linear *linear, struct rows y, enum dtype y_dtype,
        struct rows x)
{
	struct adapter p;

	if (!adapter_find(&p, call, linear))
		return;
	x = adapter_input(call, linear, &p, x);
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

void adapter_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, struct rows dy)
{
	struct rows left = dropped_rows(call, linear, dy.count);
	struct adapter p;

	if (!adapter_find(&p, call, linear))
		return;
	call_product(call, &(struct product){.y = p.module ? left : dx,
	                           .n = linear->in,
	                           .k = p.rank,
	                           .y_dtype = p.module ? call->dtype : dx_dtype,
	                           .adds = !p.module,
	                           .a = adapter_inner_grad(call, linear, &p, dy),
	                           .a_stride = p.rank,
	                           .b = p.a,
	                           .b_stride = linear->in});
	if (p.module)
		drop(call, &p, linear->in, dx, dx_dtype, 1, left);
}

void adapter_backward_weight(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x)
{
	struct adapter p;

	if (!adapter_find(&p, call, linear))
		return;
	if (!dev_is_none(p.b_grad) || !dev_is_none(p.a_grad))
		x = adapter_input(call, linear, &p, x);
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
