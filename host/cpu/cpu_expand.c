/* Weights from codes and the scales of their blocks. */
#include "device/op_move.h"
#include "host/cpu/cpu_inner.h"

OP_MOVE_LIST(CPU_DECLARE)

static void expand_row(void *context, int64_t row, int worker)
{
	const struct op_expand *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	const int8_t *codes = (const int8_t *)cpu_ptr(o->codes) + row * o->cols;
	const float *scales =
	        (const float *)cpu_ptr(o->scales) + row / o->block_rows * ((o->cols - 1) / o->block_cols + 1);
	float buffer[CPU_CHUNK];

	(void)worker;
	for (int64_t at = 0; at < o->cols; at += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, o->cols - at);
		float *out = cpu_out(buffer, cpu_ptr(o->dst), row * o->cols + at, o->dst_dtype);

		for (int64_t i = 0; i < n; i++)
			out[i] = (float)codes[at + i] * scales[(at + i) / o->block_cols];
		cpu_store(k, cpu_ptr(o->dst), row * o->cols + at, out, n, o->dst_dtype);
	}
}

int cpu_expand(struct cpu_context *cx, const struct op_expand *op)
{
	struct op_expand o = *op;

	cpu_run(cx, o.rows, expand_row, &o);
	return 0;
}
