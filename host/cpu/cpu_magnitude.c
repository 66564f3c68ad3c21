/* Weights with a magnitude for each row (DoRA): norms of rows, columns scaled, gradients. */
#include "device/op_magnitude.h"
#include "host/cpu/cpu_inner.h"

#include <math.h>
#include <string.h>

OP_MAGNITUDE_LIST(CPU_DECLARE)

enum { NORM_ROWS = 16, MAGNITUDE_ROWS = 16, GRAD_BAND = 64 };

/* Columns [c, c + n) of rows [row, row + rows) of W, in fp32. */
static void rows_load(const struct op_row_norms *o, float w[NORM_ROWS][CPU_CHUNK], int64_t row, int64_t rows,
        int64_t c, int64_t n)
{
	const struct cpu_kernels *k = cpu_kernels();
	float x[CPU_CHUNK];

	for (int64_t i = 0; i < (o->in_out ? n : rows); i++) {
		int64_t at = o->in_out ? (c + i) * o->w_stride + row : (row + i) * o->w_stride + c;
		const float *from = cpu_load(k, x, cpu_ptr(o->w), at, o->in_out ? rows : n, o->dtype);

		if (!o->in_out)
			memcpy(w[i], from, (size_t)n * sizeof(*from));
		for (int64_t j = 0; o->in_out && j < rows; j++)
			w[j][i] = from[j];
	}
}

static void row_norms_piece(void *context, int64_t piece, int worker)
{
	const struct op_row_norms *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t row = piece * NORM_ROWS, rows = min_i64(NORM_ROWS, o->out - row);
	float w[NORM_ROWS][CPU_CHUNK], sum[NORM_ROWS][CPU_CHUNK], x[CPU_CHUNK];
	double total[NORM_ROWS] = {0};

	(void)worker;
	for (int64_t c = 0; c < o->in; c += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, o->in - c);

		rows_load(o, w, row, rows, c, n);
		memset(sum, 0, sizeof(sum));
		for (int64_t r = 0; r < o->rank; r++) {
			const float *a = cpu_load(k, x, cpu_ptr(o->a), r * o->in + c, n, o->dtype);

			for (int64_t j = 0; j < rows; j++) {
				float b = cpu_number(cpu_ptr(o->b), (row + j) * o->rank + r, o->dtype);

				for (int64_t i = 0; i < n; i++)
					sum[j][i] += b * a[i];
			}
		}
		for (int64_t j = 0; j < rows; j++)
			for (int64_t i = 0; i < n; i++) {
				float v = w[j][i] + (float)o->scale * sum[j][i];

				total[j] += (double)v * (double)v;
			}
	}
	for (int64_t j = 0; j < rows; j++)
		((float *)cpu_ptr(o->norm))[row + j] = cpu_rounded((float)sqrt(total[j]), o->dtype);
}

int cpu_row_norms(struct cpu_context *cx, const struct op_row_norms *op)
{
	struct op_row_norms o = *op;

	cpu_run(cx, cpu_pieces(o.out, NORM_ROWS), row_norms_piece, &o);
	return 0;
}

static void magnitude_piece(void *context, int64_t piece, int worker)
{
	const struct op_magnitude *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t end = min_i64((piece + 1) * MAGNITUDE_ROWS, o->rows);
	float by[CPU_CHUNK], plus[CPU_CHUNK], from[CPU_CHUNK], was[CPU_CHUNK], to[CPU_CHUNK];

	(void)worker;
	for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, o->cols - c);
		const float *norm = (const float *)cpu_ptr(o->norm) + c;
		const float *m = cpu_load(k, from, cpu_ptr(o->magnitude), c, n, o->dtype);
		const float *bias =
		        dev_is_none(o->bias) ? NULL : cpu_load(k, plus, cpu_ptr(o->bias), c, n, o->dtype);

		for (int64_t i = 0; i < n; i++)
			by[i] = m[i] / norm[i] - (float)o->minus;
		for (int64_t r = piece * MAGNITUDE_ROWS; r < end; r++) {
			int64_t at = r * o->dst_stride + c;
			float *out = cpu_out(to, cpu_ptr(o->dst), at, o->dst_dtype);
			const float *x =
			        cpu_load(k, from, cpu_ptr(o->src), r * o->src_stride + c, n, o->src_dtype);
			const float *old =
			        o->accumulate ? cpu_load(k, was, cpu_ptr(o->dst), at, n, o->dst_dtype) : NULL;

			for (int64_t i = 0; i < n; i++) {
				float value = by[i] * x[i];

				value = bias ? value + bias[i] : value;
				out[i] = old ? old[i] + value : value;
			}
			cpu_store(k, cpu_ptr(o->dst), at, out, n, o->dst_dtype);
		}
	}
}

int cpu_magnitude(struct cpu_context *cx, const struct op_magnitude *op)
{
	struct op_magnitude o = *op;

	cpu_run(cx, cpu_pieces(o.rows, MAGNITUDE_ROWS), magnitude_piece, &o);
	return 0;
}

/* A piece is a band of columns, so one thread sums over all rows, in double. */
static void magnitude_grad_piece(void *context, int64_t piece, int worker)
{
	const struct op_magnitude_grad *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t at = piece * GRAD_BAND, n = min_i64(GRAD_BAND, o->cols - at);
	float *grad = (float *)cpu_ptr(o->grad) + at, dy[GRAD_BAND], y[GRAD_BAND];
	const float *norm = (const float *)cpu_ptr(o->norm) + at;
	double total[GRAD_BAND] = {0};

	(void)worker;
	for (int64_t r = 0; r < o->rows; r++) {
		const float *a = cpu_load(k, dy, cpu_ptr(o->dy), r * o->dy_stride + at, n, o->dtype);
		const float *b = cpu_load(k, y, cpu_ptr(o->y), r * o->y_stride + at, n, o->dtype);

		for (int64_t i = 0; i < n; i++)
			total[i] += (double)a[i] * (double)b[i];
	}
	for (int64_t i = 0; i < n; i++)
		grad[i] = (float)(grad[i] + total[i] / norm[i]);
}

int cpu_magnitude_grad(struct cpu_context *cx, const struct op_magnitude_grad *op)
{
	struct op_magnitude_grad o = *op;

	cpu_run(cx, cpu_pieces(o.cols, GRAD_BAND), magnitude_grad_piece, &o);
	return 0;
}
