/* Makes the benchmarked ops of layers of experts. */
#include "bench/kernel_experts.h"

static struct op_grouped grouped(struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype, int variant)
{
	int64_t n = s->hidden, k = s->hidden;
	struct op_grouped o = {.a = kernel_take(p, s->tokens * k, dtype),
	        .first = index->expert_rows,
	        .rows = s->tokens,
	        .experts = KERNEL_EXPERTS,
	        .n = n,
	        .of = variant ? GROUPED_WEIGHTS : GROUPED_ROWS,
	        .b_layout = MATMUL_TRANSPOSED,
	        .ab_dtype = dtype};

	o.c_dtype = variant ? DTYPE_F32 : dtype;
	o.c = kernel_take(p, variant ? KERNEL_EXPERTS * k * n : s->tokens * n, o.c_dtype);
	o.b = kernel_take(p, variant ? s->tokens * n : KERNEL_EXPERTS * k * n, dtype);
	*(variant ? &o.m : &o.k) = k;
	return o;
}

static void make_route(
        struct op *op, struct kernel_place *p, const struct bench_scale *s, const struct kernel_index *index)
{
	dev_addr logits = kernel_take(p, s->tokens * KERNEL_EXPERTS, DTYPE_F32),
	         weights = kernel_take(p, s->tokens, DTYPE_F32);

	if (op->kind == OP_ROUTE)
		op->route = (struct op_route){.ids = kernel_take(p, s->tokens, DTYPE_I32),
		        .weights = weights,
		        .logits = logits,
		        .tokens = s->tokens,
		        .experts = KERNEL_EXPERTS,
		        .chosen = 1,
		        .groups = 1,
		        .groups_chosen = 1,
		        .scale = 1};
	else
		op->route_grad = (struct op_route_grad){
		        .dlogits = kernel_take(p, s->tokens * KERNEL_EXPERTS, DTYPE_F32),
		        .dweights = weights,
		        .ids = index->expert,
		        .logits = logits,
		        .tokens = s->tokens,
		        .experts = KERNEL_EXPERTS,
		        .chosen = 1,
		        .scale = 1};
}

static void make_rows(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype)
{
	int64_t count = s->tokens * s->hidden;
	dev_addr x = kernel_take(p, count, dtype), y = kernel_take(p, count, dtype),
	         weights = kernel_take(p, s->tokens, DTYPE_F32);

	if (op->kind == OP_DISPATCH)
		op->dispatch =
		        (struct op_dispatch){y, x, index->order, s->tokens, 1, s->hidden, .dtype = dtype};
	else if (op->kind == OP_COMBINE)
		op->combine = (struct op_combine){
		        y, x, index->order, s->tokens, 1, s->hidden, dtype, dtype, .accumulate = 0};
	else if (op->kind == OP_WEIGH)
		op->weigh = (struct op_weigh){x, weights, index->order, s->tokens, s->hidden, .dtype = dtype};
	else
		op->weigh_grad = (struct op_weigh_grad){x, y, kernel_take(p, s->tokens, DTYPE_F32), weights,
		        index->order, s->tokens, s->hidden, .dtype = dtype};
}

void kernel_make_experts(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype, int variant)
{
	if (op->kind == OP_GROUPED)
		op->grouped = grouped(p, s, index, dtype, variant);
	else if (op->kind == OP_ORDER)
		op->order = (struct op_order){kernel_take(p, KERNEL_EXPERTS + 1, DTYPE_I32),
		        kernel_take(p, s->tokens, DTYPE_I32), kernel_take(p, s->tokens, DTYPE_I32),
		        index->expert, s->tokens, 1, KERNEL_EXPERTS};
	else if (op->kind == OP_GROUPED_COLSUM)
		op->grouped_colsum =
		        (struct op_grouped_colsum){kernel_take(p, KERNEL_EXPERTS * s->hidden, DTYPE_F32),
		                kernel_take(p, s->tokens * s->hidden, dtype), index->expert_rows, s->tokens,
		                KERNEL_EXPERTS, s->hidden, dtype};
	else if (op->kind == OP_EXPERT_SCALE)
		op->expert_scale =
		        (struct op_expert_scale){kernel_take(p, s->tokens, DTYPE_F32), index->expert,
		                kernel_take(p, KERNEL_EXPERTS, dtype), s->tokens, 1, KERNEL_EXPERTS, dtype};
	else if (op->kind == OP_EXPERT_SCALE_GRAD)
		op->expert_scale_grad = (struct op_expert_scale_grad){kernel_take(p, s->tokens, DTYPE_F32),
		        kernel_take(p, KERNEL_EXPERTS, DTYPE_F32), kernel_take(p, s->tokens, DTYPE_F32),
		        index->expert_rows, index->order, kernel_take(p, KERNEL_EXPERTS, dtype), s->tokens, 1,
		        KERNEL_EXPERTS, dtype};
	else if (op->kind == OP_ROUTER_SHARES)
		op->router_shares = (struct op_router_shares){
		        kernel_take(p, s->tokens * KERNEL_EXPERTS, DTYPE_F32),
		        kernel_take(p, s->tokens * KERNEL_EXPERTS, DTYPE_F32), s->tokens, KERNEL_EXPERTS};
	else if (op->kind == OP_BALANCE_GRAD)
		op->balance_grad =
		        (struct op_balance_grad){kernel_take(p, s->tokens * KERNEL_EXPERTS, DTYPE_F32),
		                kernel_take(p, s->tokens * KERNEL_EXPERTS, DTYPE_F32),
		                kernel_take(p, KERNEL_EXPERTS, DTYPE_F32), index->expert_rows, s->tokens,
		                KERNEL_EXPERTS, 1, KERNEL_EXPERTS + 1, 1};
	else if (op->kind == OP_ROUTE || op->kind == OP_ROUTE_GRAD)
		make_route(op, p, s, index);
	else
		make_rows(op, p, s, index, dtype);
}
