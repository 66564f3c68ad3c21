/* Adapters (LoRA) of experts: y += s B (A x), with A and B of each row's expert. */
#include "model/blocks/experts.h"

static const enum tensor_role adapter_roles[] = {ROLE_EXPERTS_GATE_LORA_A, ROLE_EXPERTS_UP_LORA_A,
        ROLE_EXPERTS_DOWN_LORA_A, ROLE_EXPERTS_GATE_UP_LORA_A};

/* A [rank, in] and B [out, rank] of each expert. */
struct adapter {
	int64_t rank, out, in;
	double scale;
	dev_addr a, b, a_grad, b_grad;
};

static int adapter_find(struct adapter *p, const struct stage_call *call, enum experts_module module)
{
	enum tensor_role a = adapter_roles[module];
	int64_t width = experts_cols(call), F = call->block->experts.F, rank = call->block->adapter[a].rank;
	int is_down = module == EXPERTS_DOWN;
	int64_t inner = module == EXPERTS_GATE_UP ? 2 * F : F;

	if (!call->c->adapter_rank || !rank)
		return 0;
	*p = (struct adapter){rank, is_down ? width : inner, is_down ? F : width,
	        call->block->adapter[a].scale, experts_weight_of(call, a), experts_weight_of(call, a + 1),
	        experts_grad_of(call, a), experts_grad_of(call, a + 1)};
	return 1;
}

int experts_has_adapters(const struct stage_call *call)
{
	for (size_t i = 0; i < sizeof(adapter_roles) / sizeof(*adapter_roles); i++)
		if (call->c->adapter_rank && call->block->adapter[adapter_roles[i]].rank)
			return 1;
	return 0;
}

/* s x A^T, in scratch */
static dev_addr inner_of(
        struct stage_call *call, const struct experts_scratch *s, const struct adapter *p, dev_addr x)
{
	dev_addr inner = own_scratch_at(call, s->adapter);

	experts_rows_product(call, inner, x, p->a, p->rank, p->in, MATMUL_TRANSPOSED, 0);
	call_scale(call, inner, inner, experts_rows(call) * p->rank, p->scale);
	return inner;
}

/* s dy B, in scratch: the gradient of A x */
static dev_addr inner_grad_of(
        struct stage_call *call, const struct experts_scratch *s, const struct adapter *p, dev_addr dy)
{
	dev_addr inner = own_scratch_at(call, s->adapter_grad);

	experts_rows_product(call, inner, dy, p->b, p->rank, p->out, MATMUL_NORMAL, 0);
	call_scale(call, inner, inner, experts_rows(call) * p->rank, p->scale);
	return inner;
}

/* The gradients of A and B, from dy and x. */
static void weights_backward(struct stage_call *call, const struct experts_scratch *s,
        const struct adapter *p, dev_addr dy, dev_addr x)
{
	if (!dev_is_none(p->b_grad))
		experts_weights_product(call, p->b_grad, dy, p->out, inner_of(call, s, p, x), p->rank);
	if (!dev_is_none(p->a_grad))
		experts_weights_product(call, p->a_grad, inner_grad_of(call, s, p, dy), p->rank, x, p->in);
}

/* Columns of gate (first 0) or up (first experts_up_at): one side is gate_up, the other [rows, F]. */
static void columns(
        struct stage_call *call, dev_addr dst, int64_t dst_stride, dev_addr src, int64_t src_stride, int adds)
{
	call_op(call, &(struct op){.kind = OP_COLUMNS,
	                      .columns = {.dst = dst,
	                              .src = src,
	                              .rows = experts_rows(call),
	                              .cols = call->block->experts.F,
	                              .dst_stride = dst_stride,
	                              .src_stride = src_stride,
	                              .dst_dtype = call->dtype,
	                              .src_dtype = call->dtype,
	                              .accumulate = adds,
	                              .range = experts_range(call)}});
}

void experts_adapt_gate_up(struct stage_call *call, const struct experts_scratch *s, dev_addr gate_up,
        dev_addr in, dev_addr room)
{
	int64_t F = call->block->experts.F;
	struct adapter p;

	for (int i = 0; i < 2; i++) {
		if (!adapter_find(&p, call, (enum experts_module)i))
			continue;
		experts_rows_product(
		        call, room, inner_of(call, s, &p, in), p.b, F, p.rank, MATMUL_TRANSPOSED, 0);
		columns(call, dev_at(gate_up, i * experts_up_at(call) * call->element_bytes),
		        experts_gate_up_cols(call), room, F, 1);
	}
	if (adapter_find(&p, call, EXPERTS_GATE_UP))
		experts_rows_product(
		        call, gate_up, inner_of(call, s, &p, in), p.b, p.out, p.rank, MATMUL_TRANSPOSED, 1);
}

void experts_adapt_down(
        struct stage_call *call, const struct experts_scratch *s, dev_addr out, dev_addr hidden)
{
	struct adapter p;

	if (adapter_find(&p, call, EXPERTS_DOWN))
		experts_rows_product(
		        call, out, inner_of(call, s, &p, hidden), p.b, p.out, p.rank, MATMUL_TRANSPOSED, 1);
}

void experts_adapt_down_input(
        struct stage_call *call, const struct experts_scratch *s, dev_addr dhidden, dev_addr dout)
{
	struct adapter p;

	if (adapter_find(&p, call, EXPERTS_DOWN))
		experts_rows_product(
		        call, dhidden, inner_grad_of(call, s, &p, dout), p.a, p.in, p.rank, MATMUL_NORMAL, 1);
}

void experts_adapt_down_weights(
        struct stage_call *call, const struct experts_scratch *s, dev_addr dout, dev_addr hidden)
{
	struct adapter p;

	if (adapter_find(&p, call, EXPERTS_DOWN))
		weights_backward(call, s, &p, dout, hidden);
}

void experts_adapt_gate_up_backward(struct stage_call *call, const struct experts_scratch *s, dev_addr din,
        dev_addr dgate_up, dev_addr in, dev_addr room)
{
	int64_t F = call->block->experts.F;
	struct adapter p;

	for (int i = 0; i < 2; i++) {
		if (!adapter_find(&p, call, (enum experts_module)i))
			continue;
		columns(call, room, F, dev_at(dgate_up, i * experts_up_at(call) * call->element_bytes),
		        experts_gate_up_cols(call), 0);
		weights_backward(call, s, &p, room, in);
		experts_rows_product(
		        call, din, inner_grad_of(call, s, &p, room), p.a, p.in, p.rank, MATMUL_NORMAL, 1);
	}
	if (!adapter_find(&p, call, EXPERTS_GATE_UP))
		return;
	weights_backward(call, s, &p, dgate_up, in);
	experts_rows_product(
	        call, din, inner_grad_of(call, s, &p, dgate_up), p.a, p.in, p.rank, MATMUL_NORMAL, 1);
}
