/* Products of rows with the matrices of their experts, and sums over the rows of each expert. */
#include "device/op_experts.h"
#include "host/cpu/cpu_inner.h"
#include "host/cpu/matmul.h"

#include <string.h>

OP_EXPERTS_LIST(CPU_DECLARE)

/* The product of one expert's rows, [first, first + count). */
static struct op_matmul product_of(const struct op_grouped *o, int64_t e, int64_t first, int64_t count)
{
	int64_t ab = dtype_bytes(o->ab_dtype), c = dtype_bytes(o->c_dtype);
	int is_turned = o->b_layout == MATMUL_TRANSPOSED;

	if (o->of == GROUPED_ROWS)
		return (struct op_matmul){.c = dev_at(o->c, first * o->n * c),
		        .a = dev_at(o->a, first * o->k * ab),
		        .b = dev_at(o->b, e * o->n * o->k * ab),
		        .bias = dev_is_none(o->bias) ? DEV_NONE : dev_at(o->bias, e * o->n * ab),
		        .m = count,
		        .n = o->n,
		        .k = o->k,
		        .a_stride = o->k,
		        .b_stride = is_turned ? o->k : o->n,
		        .c_stride = o->n,
		        .b_layout = o->b_layout,
		        .ab_dtype = o->ab_dtype,
		        .c_dtype = o->c_dtype,
		        .accumulate = o->accumulate};
	return (struct op_matmul){.c = dev_at(o->c, e * o->m * o->n * c),
	        .a = dev_at(o->a, first * o->m * ab),
	        .b = dev_at(o->b, first * o->n * ab),
	        .bias = DEV_NONE,
	        .m = o->m,
	        .n = o->n,
	        .k = count,
	        .a_stride = o->m,
	        .b_stride = o->n,
	        .c_stride = o->n,
	        .a_layout = MATMUL_TRANSPOSED,
	        .ab_dtype = o->ab_dtype,
	        .c_dtype = o->c_dtype,
	        .accumulate = o->accumulate};
}

static int grouped_get(struct op_matmul *product, const void *context, int64_t e)
{
	const struct op_grouped *o = context;
	const int32_t *first = cpu_ptr(o->first);
	int64_t count = first[e + 1] - first[e];

	*product = product_of(o, e, first[e], count);
	return count > 0;
}

static void zero_piece(void *context, int64_t e, int worker)
{
	const struct op_grouped *o = context;
	const int32_t *first = cpu_ptr(o->first);
	int64_t bytes = o->m * o->n * dtype_bytes(o->c_dtype);

	(void)worker;
	if (first[e + 1] == first[e])
		memset((char *)cpu_ptr(o->c) + e * bytes, 0, (size_t)bytes);
}

int cpu_grouped(struct cpu_context *cx, const struct op_grouped *op)
{
	struct op_grouped o = *op;

	if (o.of == GROUPED_WEIGHTS && !o.accumulate)
		cpu_run(cx, o.experts, zero_piece, &o);
	return cpu_matmuls(cx, o.experts, grouped_get, &o);
}

/* ---- sums ---- */

/* A piece is a band of an expert's columns, so one thread sums over all its rows, in double. */
enum { BAND = 256 };

static void colsum_piece(void *context, int64_t piece, int worker)
{
	const struct op_grouped_colsum *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	const int32_t *first = cpu_ptr(o->first);
	int64_t bands = cpu_pieces(o->cols, BAND), e = piece / bands, at = piece % bands * BAND,
	        n = min_i64(BAND, o->cols - at);
	float *sum = (float *)cpu_ptr(o->sum) + e * o->cols + at, x[BAND];
	double acc[BAND];

	(void)worker;
	memset(acc, 0, sizeof acc);
	for (int64_t r = first[e]; r < first[e + 1]; r++)
		k->accumulate(acc, cpu_load(k, x, cpu_ptr(o->x), r * o->cols + at, n, o->dtype), n);
	for (int64_t i = 0; i < n; i++)
		sum[i] = (float)(sum[i] + acc[i]);
}

int cpu_grouped_colsum(struct cpu_context *cx, const struct op_grouped_colsum *op)
{
	struct op_grouped_colsum o = *op;

	cpu_run(cx, o.experts * cpu_pieces(o.cols, BAND), colsum_piece, &o);
	return 0;
}
