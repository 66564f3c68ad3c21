/* The products of adapters (LoRA) beside those of their matrices. */
#include "model/blocks/linear.h"

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

	if (a == ROLE_COUNT || !call->c->adapter_rank || !call->block->adapter[a].rank)
		return 0;
	*p = (struct adapter){call->block->adapter[a].rank, call->block->adapter[a].scale, weight_of(call, a),
	        weight_of(call, a + 1), grad_of(call, a), grad_of(call, a + 1)};
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

void adapter_forward(struct stage_call *call, const struct linear *linear, struct rows y, enum dtype y_dtype,
        struct rows x)
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

void adapter_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
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

void adapter_backward_weight(
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
