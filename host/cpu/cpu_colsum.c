/* Sums of columns: the gradient of a bias. */
#include "device/op_move.h"
#include "host/cpu/cpu_inner.h"

#include <string.h>

OP_MOVE_LIST(CPU_DECLARE)

/* A piece is a band of columns, so one thread sums over all rows, in double. */
enum { COLSUM_BAND = 64 };

static void colsum_piece(void *context, int64_t piece, int worker)
{
	const struct op_colsum *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t at = piece * COLSUM_BAND, n = min_i64(COLSUM_BAND, o->cols - at);
	float *sum = (float *)cpu_ptr(o->sum) + at, x[COLSUM_BAND];
	double acc[COLSUM_BAND];

	(void)worker;
	memset(acc, 0, sizeof acc);
	for (int64_t r = 0; r < o->rows; r++)
		k->accumulate(acc, cpu_load(k, x, cpu_ptr(o->x), r * o->x_stride + at, n, o->dtype), n);
	for (int64_t i = 0; i < n; i++)
		sum[i] = (float)(sum[i] + acc[i]);
}

int cpu_colsum(struct cpu_context *cx, const struct op_colsum *op)
{
	struct op_colsum o = *op;

	cpu_run(cx, cpu_pieces(o.cols, COLSUM_BAND), colsum_piece, &o);
	return 0;
}
