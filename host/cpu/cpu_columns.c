/* Columns of wider rows: copied, converted, added. */
#include "base/size.h"
#include "device/op_move.h"
#include "host/cpu/cpu_inner.h"

#include <string.h>

OP_MOVE_LIST(CPU_DECLARE)

enum { COLUMNS_ROWS = 64 };

/* A piece is some rows. */
static void columns_piece(void *context, int64_t piece, int worker)
{
	const struct op_columns *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	struct cpu_rows rows = cpu_rows_piece(&o->range, o->rows, piece, COLUMNS_ROWS);
	int64_t spread = max_i64(o->spread, 1), fold = max_i64(o->fold, 1);
	float from[CPU_CHUNK], to[CPU_CHUNK], factor = o->factor != 0 ? (float)o->factor : 1;

	(void)worker;
	for (int64_t r = rows.begin; r < rows.end; r++)
		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
			int64_t n = min_i64(CPU_CHUNK, o->cols - c), at = r * o->dst_stride + c;
			int64_t row = r / spread * fold;
			const float *x =
			        cpu_load(k, from, cpu_ptr(o->src), row * o->src_stride + c, n, o->src_dtype);
			const float *was =
			        o->accumulate ? cpu_load(k, to, cpu_ptr(o->dst), at, n, o->dst_dtype) : NULL;
			float sum[CPU_CHUNK];

			for (int64_t i = 0; i < n; i++)
				sum[i] = was ? was[i] + factor * x[i] : factor * x[i];
			for (int64_t f = 1; f < fold; f++) {
				x = cpu_load(k, from, cpu_ptr(o->src), (row + f) * o->src_stride + c, n,
				        o->src_dtype);
				for (int64_t i = 0; i < n; i++)
					sum[i] += factor * x[i];
			}
			if (o->dst_dtype == DTYPE_F32)
				memcpy((float *)cpu_ptr(o->dst) + at, sum, (size_t)n * sizeof(*sum));
			else
				cpu_store(k, cpu_ptr(o->dst), at, sum, n, o->dst_dtype);
		}
}

int cpu_columns(struct cpu_context *cx, const struct op_columns *op)
{
	struct op_columns o = *op;

	cpu_run_rows(cx, &o.range, o.rows, COLUMNS_ROWS, columns_piece, &o);
	return 0;
}
