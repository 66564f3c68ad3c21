#include "device/operand.h"

#include <assert.h>

int op_access_list(const struct op *op, struct op_access *list)
{
	struct operand o[OPERAND_MAX];
	int operand_count = op_operands(op, o), count = 0;

	for (int i = 0; i < operand_count; i++) {
		if (dev_is_none(o[i].base))
			continue;
		if (o[i].use & OPERAND_READ)
			list[count++] = (struct op_access){o[i].base, o[i].bytes, 0};
		if (o[i].use & OPERAND_WRITE)
			list[count++] = (struct op_access){o[i].base, o[i].bytes, 1};
	}
	assert(count <= OP_ACCESS_MAX);
	return count;
}

/* Pairs (i, j) with j <= i, and j > i - window where there is a window, of one document. */
static double document_pairs(int64_t tokens, int64_t window)
{
	double t = (double)tokens, w = (double)window;

	if (window <= 0 || window >= tokens)
		return t * (t + 1) / 2;
	return w * (w + 1) / 2 + (t - w) * w;
}

/* Of documents as long as they can be, and of what is left behind them. */
static double attention_pairs(int64_t tokens, int64_t document_tokens, int64_t window)
{
	int64_t longest = document_tokens > 0 ? document_tokens : tokens;

	return (double)(tokens / longest) * document_pairs(longest, window) +
	       document_pairs(tokens % longest, window);
}

/* Arithmetic of matrix products, and the dtype whose units do it. */
static double op_flops(enum dtype *dtype, const struct op *op)
{
	const struct op_attention *a = &op->attention;
	const struct op_attention_grad *g = &op->attention_grad;

	switch (op->kind) {
	case OP_MATMUL:
		*dtype = op->matmul.ab_dtype;
		return 2.0 * (double)op->matmul.m * (double)op->matmul.n * (double)op->matmul.k;
	case OP_ATTENTION: /* scores and their product with v */
		*dtype = a->dtype;
		return 4.0 * attention_pairs(a->tokens, a->document_tokens, a->window) *
		       (double)(a->heads * a->head_dim);
	case OP_ATTENTION_GRAD: /* scores again, dp, dq, dk, dv */
		*dtype = g->dtype;
		return 10.0 * attention_pairs(g->tokens, g->document_tokens, g->window) *
		       (double)(g->heads * g->head_dim);
	default:
		*dtype = DTYPE_F32;
		return 0;
	}
}

void op_cost_of(const struct op *op, struct op_cost *cost)
{
	struct operand o[OPERAND_MAX];
	int operand_count = op_operands(op, o);
	enum dtype dtype;
	double flops = op_flops(&dtype, op);

	*cost = (struct op_cost){0};
	if (dtype == DTYPE_BF16)
		cost->flops_bf16 = flops;
	else
		cost->flops_f32 = flops;
	if (op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_GRAD)
		cost->attention_flops = flops;
	for (int i = 0; i < operand_count; i++) {
		double moved = dev_is_none(o[i].base) ? 0 : (double)o[i].dense_bytes;

		cost->memory_bytes += o[i].use == OPERAND_UPDATE ? 2 * moved : moved;
	}
}
