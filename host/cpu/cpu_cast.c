/* Conversion between dtypes, and fp32 from its upper and lower halves. */
#include "device/op_move.h"
#include "host/cpu/cpu_inner.h"

#include <string.h>

OP_MOVE_LIST(CPU_DECLARE)

static void cast_piece(void *context, int64_t piece, int worker)
{
	const struct op_cast *c = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t at = piece * CPU_PIECE, n = min_i64(CPU_PIECE, c->count - at);
	int64_t bytes = c->src_dtype == DTYPE_F32 ? 4 : 2;

	(void)worker;
	if (c->dst_dtype == c->src_dtype)
		memcpy((char *)cpu_ptr(c->dst) + at * bytes, (const char *)cpu_ptr(c->src) + at * bytes,
		        (size_t)(n * bytes));
	else if (c->dst_dtype == DTYPE_F32)
		k->widen((float *)cpu_ptr(c->dst) + at, (const uint16_t *)cpu_ptr(c->src) + at, n);
	else
		k->narrow((uint16_t *)cpu_ptr(c->dst) + at, (const float *)cpu_ptr(c->src) + at, n);
}

int cpu_cast(struct cpu_context *cx, const struct op_cast *o)
{
	struct op_cast c = *o;

	cpu_run(cx, cpu_pieces(c.count, CPU_PIECE), cast_piece, &c);
	return 0;
}

static void join_piece(void *context, int64_t piece, int worker)
{
	const struct op_join *j = context;
	int64_t at = piece * CPU_PIECE, n = min_i64(CPU_PIECE, j->count - at);

	(void)worker;
	cpu_kernels()->join((float *)cpu_ptr(j->dst) + at, (const uint16_t *)cpu_ptr(j->hi) + at,
	        (const int16_t *)cpu_ptr(j->lo) + at, n);
}

int cpu_join(struct cpu_context *cx, const struct op_join *o)
{
	struct op_join j = *o;

	cpu_run(cx, cpu_pieces(j.count, CPU_PIECE), join_piece, &j);
	return 0;
}
