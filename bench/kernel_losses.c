/* Makes the benchmarked ops of losses of answers. */
#include "bench/kernel_losses.h"

void kernel_make_preference(
        struct op *op, struct kernel_place *p, const struct bench_scale *s, const struct kernel_index *index)
{
	int64_t pairs = kernel_pairs(s);

	if (op->kind == OP_LOG_RATIO) {
		op->log_ratio = (struct op_log_ratio){kernel_take(p, 4 * pairs, DTYPE_F32),
		        kernel_take(p, s->tokens, DTYPE_F32), index->first,
		        kernel_take(p, 2 * pairs, DTYPE_F64), 2 * pairs, s->tokens};
		return;
	}
	op->preference = (struct op_preference){kernel_take(p, s->tokens, DTYPE_F32),
	        kernel_take(p, s->tokens, DTYPE_F32), index->first, index->first,
	        kernel_take(p, 2 * pairs, DTYPE_F64), pairs, s->tokens, {PREFERENCE_SIGMOID, .beta = 0.1}};
}
