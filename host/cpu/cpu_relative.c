/* Biases by distance from a table, and the way back. */
#include "device/op_attention.h"
#include "host/cpu/cpu_inner.h"

#include <string.h>

OP_ATTENTION_LIST(CPU_DECLARE)

static void relative_piece(void *context, int64_t h, int worker)
{
	const struct op_relative *o = context;
	struct relative_side side = relative_side_of(&o->rule);
	int64_t e = dtype_bytes(o->dtype), first = 2 * h * o->tokens;

	(void)worker;
	memset((char *)cpu_ptr(o->out) + first * e, 0, (size_t)e);
	for (int64_t n = 1; n < 2 * o->tokens; n++)
		memcpy((char *)cpu_ptr(o->out) + (first + n) * e,
		        (const char *)cpu_ptr(o->table) +
		                (relative_row(&side, n - o->tokens) * o->heads + h) * e,
		        (size_t)e);
}

int cpu_relative(struct cpu_context *cx, const struct op_relative *op)
{
	struct op_relative o = *op;

	cpu_run(cx, o.heads, relative_piece, &o);
	return 0;
}

static void relative_grad_piece(void *context, int64_t h, int worker)
{
	const struct op_relative_grad *o = context;
	struct relative_side side = relative_side_of(&o->rule);
	const float *dout = (const float *)cpu_ptr(o->dout) + 2 * h * o->tokens;
	float *dtable = cpu_ptr(o->dtable);
	double sum[RELATIVE_ROWS_MAX] = {0};

	(void)worker;
	for (int64_t n = 1; n < 2 * o->tokens; n++)
		sum[relative_row(&side, n - o->tokens)] += dout[n];
	for (int64_t row = 0; row < o->rule.rows; row++)
		dtable[row * o->heads + h] = (float)(dtable[row * o->heads + h] + sum[row]);
}

int cpu_relative_grad(struct cpu_context *cx, const struct op_relative_grad *op)
{
	struct op_relative_grad o = *op;

	cpu_run(cx, o.heads, relative_grad_piece, &o);
	return 0;
}
