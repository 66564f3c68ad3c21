/* Makes the benchmarked ops of pooling. */
#include "bench/kernel_pool.h"

void kernel_make_pool(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype)
{
	int64_t rows = s->tokens, texts = min_i64(2 * kernel_pairs(s), rows), cols = rows / texts;

	if (op->kind == OP_POOL_MAX)
		op->pool_max = (struct op_pool_max){kernel_take(p, texts * s->hidden, DTYPE_F32),
		        kernel_take(p, texts * s->hidden, DTYPE_I32), kernel_take(p, rows * s->hidden, dtype),
		        index->first, index->last, texts, s->hidden, rows, dtype};
	else /* so few columns that each number comes from a row of its own */
		op->pool_max_grad = (struct op_pool_max_grad){kernel_take(p, rows * cols, DTYPE_F32),
		        kernel_take(p, texts * cols, DTYPE_F32), index->order, texts, cols, rows};
}
