/* Makes the benchmarked ops of pooling. Backward has one column: its rows must be some of x. */
#include "bench/kernel_pool.h"

void kernel_make_pool(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype)
{
	int64_t rows = s->tokens, count = rows * s->hidden;

	if (op->kind == OP_POOL_MAX)
		op->pool_max = (struct op_pool_max){kernel_take(p, count, DTYPE_F32),
		        kernel_take(p, count, DTYPE_I32), kernel_take(p, count, dtype), index->order,
		        index->order, rows, s->hidden, rows, dtype};
	else
		op->pool_max_grad = (struct op_pool_max_grad){kernel_take(p, rows, DTYPE_F32),
		        kernel_take(p, rows, DTYPE_F32), index->order, rows, 1, rows};
}
