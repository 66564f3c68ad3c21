/* Rows of experts: taken from tokens, multiplied, weighed, and summed for their tokens. */
#include "device/op_experts.h"
#include "device/op_matmul.h"
#include "host/cpu/cpu_inner.h"

#include <string.h>

OP_EXPERTS_LIST(CPU_DECLARE)
OP_MATMUL_LIST(CPU_DECLARE)

/* ---- dispatch and combine ---- */

static void dispatch_piece(void *context, int64_t piece, int worker)
{
	const struct op_dispatch *o = context;
	const int32_t *slot = cpu_ptr(o->slot);
	int64_t each = cpu_piece_rows(o->cols), bytes = o->cols * dtype_bytes(o->dtype),
	        end = min_i64((piece + 1) * each, o->tokens * o->chosen);

	(void)worker;
	for (int64_t r = piece * each; r < end; r++)
		memcpy((char *)cpu_ptr(o->y) + r * bytes,
		        (const char *)cpu_ptr(o->x) + slot[r] / o->chosen * bytes, (size_t)bytes);
}

int cpu_dispatch(struct cpu_context *cx, const struct op_dispatch *op)
{
	struct op_dispatch o = *op;

	cpu_run(cx, cpu_pieces(o.tokens * o.chosen, cpu_piece_rows(o.cols)), dispatch_piece, &o);
	return 0;
}

/* Columns [c, c + n) of a token. */
static void combine_columns(const struct op_combine *o, int64_t t, int64_t c, int64_t n)
{
	const struct cpu_kernels *k = cpu_kernels();
	const int32_t *row = (const int32_t *)cpu_ptr(o->row) + t * o->chosen;
	float buffer[CPU_CHUNK], sum[CPU_CHUNK];

	for (int64_t j = 0; j < o->chosen; j++) {
		const float *x = cpu_load(k, buffer, cpu_ptr(o->x), row[j] * o->cols + c, n, o->dtype);

		if (j)
			k->add(sum, sum, x, n);
		else
			memcpy(sum, x, (size_t)n * sizeof(*sum));
	}
	if (o->accumulate)
		k->add(sum, cpu_load(k, buffer, cpu_ptr(o->y), t * o->cols + c, n, o->y_dtype), sum, n);
	if (o->y_dtype == DTYPE_F32)
		memcpy((float *)cpu_ptr(o->y) + t * o->cols + c, sum, (size_t)n * sizeof(*sum));
	else
		cpu_store(k, cpu_ptr(o->y), t * o->cols + c, sum, n, o->y_dtype);
}

static void combine_piece(void *context, int64_t piece, int worker)
{
	const struct op_combine *o = context;
	int64_t each = cpu_piece_rows(o->cols), end = min_i64((piece + 1) * each, o->tokens);

	(void)worker;
	for (int64_t t = piece * each; t < end; t++)
		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK)
			combine_columns(o, t, c, min_i64(CPU_CHUNK, o->cols - c));
}

int cpu_combine(struct cpu_context *cx, const struct op_combine *op)
{
	struct op_combine o = *op;

	cpu_run(cx, cpu_pieces(o.tokens, cpu_piece_rows(o.cols)), combine_piece, &o);
	return 0;
}

/* ---- weights ---- */

/* x[at ..) *= weight */
static void row_scale(dev_addr x, int64_t at, int64_t n, float weight, enum dtype dtype)
{
	const struct cpu_kernels *k = cpu_kernels();
	float buffer[CPU_CHUNK], *out = cpu_out(buffer, cpu_ptr(x), at, dtype);
	const float *in = cpu_load(k, buffer, cpu_ptr(x), at, n, dtype);

	for (int64_t i = 0; i < n; i++)
		out[i] = in[i] * weight;
	cpu_store(k, cpu_ptr(x), at, out, n, dtype);
}

/* The sum over a row of x * dx, before both are multiplied by its weight. Without dx only x is. */
static double row_weigh(const struct op_weigh_grad *o, int64_t r, float weight)
{
	const struct cpu_kernels *k = cpu_kernels();
	float a[CPU_CHUNK], b[CPU_CHUNK];
	double sum = 0;

	for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, o->cols - c), at = r * o->cols + c;

		if (!dev_is_none(o->dx)) {
			const float *x = cpu_load(k, a, cpu_ptr(o->x), at, n, o->dtype),
			            *dx = cpu_load(k, b, cpu_ptr(o->dx), at, n, o->dtype);

			for (int64_t i = 0; i < n; i++)
				sum += (double)x[i] * dx[i];
			row_scale(o->dx, at, n, weight, o->dtype);
		}
		row_scale(o->x, at, n, weight, o->dtype);
	}
	return sum;
}

static void weigh_piece(void *context, int64_t piece, int worker)
{
	const struct op_weigh_grad *o = context;
	const int32_t *slot = dev_is_none(o->slot) ? NULL : cpu_ptr(o->slot);
	const float *weights = cpu_ptr(o->weights);
	float *dweights = dev_is_none(o->dx) ? NULL : cpu_ptr(o->dweights);
	int64_t each = cpu_piece_rows(o->cols), end = min_i64((piece + 1) * each, o->rows);

	(void)worker;
	for (int64_t r = piece * each; r < end; r++) {
		int64_t s = slot ? slot[r] : r;
		double sum = row_weigh(o, r, weights[s]);

		if (dweights)
			dweights[s] = (float)sum;
	}
}

int cpu_weigh(struct cpu_context *cx, const struct op_weigh *op)
{
	struct op_weigh_grad o = {.x = op->x,
	        .weights = op->weights,
	        .slot = op->slot,
	        .rows = op->rows,
	        .cols = op->cols,
	        .dtype = op->dtype};

	cpu_run(cx, cpu_pieces(o.rows, cpu_piece_rows(o.cols)), weigh_piece, &o);
	return 0;
}

int cpu_weigh_grad(struct cpu_context *cx, const struct op_weigh_grad *op)
{
	struct op_weigh_grad o = *op;

	cpu_run(cx, cpu_pieces(o.rows, cpu_piece_rows(o.cols)), weigh_piece, &o);
	return 0;
}

/* ---- products ---- */

/* The product of one expert's rows, [first, first + count). */
static struct op_matmul product_of(const struct op_grouped *o, int64_t e, int64_t first, int64_t count)
{
	int64_t ab = dtype_bytes(o->ab_dtype), c = dtype_bytes(o->c_dtype);
	int is_turned = o->b_layout == MATMUL_TRANSPOSED;

	if (o->of == GROUPED_ROWS)
		return (struct op_matmul){.c = dev_at(o->c, first * o->n * c),
		        .a = dev_at(o->a, first * o->k * ab),
		        .b = dev_at(o->b, e * o->n * o->k * ab),
		        .bias = DEV_NONE,
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

int cpu_grouped(struct cpu_context *cx, const struct op_grouped *op)
{
	const int32_t *first = cpu_ptr(op->first);
	int64_t bytes = op->m * op->n * dtype_bytes(op->c_dtype);
	int err = 0;

	for (int64_t e = 0; e < op->experts && !err; e++) {
		int64_t count = first[e + 1] - first[e];
		struct op_matmul product = product_of(op, e, first[e], count);

		if (count)
			err = cpu_matmul(cx, &product);
		else if (op->of == GROUPED_WEIGHTS && !op->accumulate)
			memset((char *)cpu_ptr(op->c) + e * bytes, 0, (size_t)bytes);
	}
	return err;
}
