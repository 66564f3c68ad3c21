/* Makes the benchmarked ops of magnitudes (DoRA). */
#include "bench/kernel_magnitude.h"

void kernel_make_magnitude(
        struct op *op, struct kernel_place *p, const struct bench_scale *s, enum dtype dtype)
{
	int64_t in = s->hidden, out = s->intermediate, rank = 16, count = s->tokens * out;

	if (op->kind == OP_ROW_NORMS)
		op->row_norms = (struct op_row_norms){kernel_take(p, out, DTYPE_F32),
		        kernel_take(p, out * in, dtype), kernel_take(p, rank * in, dtype),
		        kernel_take(p, out * rank, dtype), out, in, rank, in, 2, 0, dtype};
	else if (op->kind == OP_MAGNITUDE)
		op->magnitude =
		        (struct op_magnitude){kernel_take(p, count, dtype), kernel_take(p, count, dtype),
		                kernel_take(p, out, dtype), kernel_take(p, out, DTYPE_F32), DEV_NONE,
		                s->tokens, out, out, out, 0, 0, dtype, dtype, dtype};
	else
		op->magnitude_grad = (struct op_magnitude_grad){kernel_take(p, out, DTYPE_F32),
		        kernel_take(p, count, dtype), kernel_take(p, count, dtype),
		        kernel_take(p, out, DTYPE_F32), s->tokens, out, out, out, dtype};
}
