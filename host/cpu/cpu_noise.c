/* Dropout, and the noise of embeddings. */
#include "device/noise.h"
#include "device/op_noise.h"
#include "host/cpu/cpu_inner.h"

#include <math.h>

OP_NOISE_LIST(CPU_DECLARE)

enum { NOISE_ROWS = 16 }; /* of a piece */

/* `to` = kept elements of x times `scale`, the first that of an even column. */
static void dropped(
        float *to, const float *x, uint64_t row, int64_t column, int64_t n, uint32_t limit, float scale)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = noise_bits(row, column + i) < limit ? 0 : x[i] * scale;
}

static void dropout_piece(void *context, int64_t piece, int worker)
{
	const struct op_dropout *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	const uint64_t *key = cpu_ptr(o->key);
	const uint32_t limit = noise_limit(o->share);
	const float scale = (float)(1 / (1 - o->share));
	int64_t end = min_i64((piece + 1) * NOISE_ROWS, o->rows);
	float from[CPU_CHUNK], was[CPU_CHUNK], sum[CPU_CHUNK];

	(void)worker;
	for (int64_t r = piece * NOISE_ROWS; r < end; r++)
		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
			int64_t n = min_i64(CPU_CHUNK, o->cols - c), at = r * o->dst_stride + c;
			float *out = cpu_out(sum, cpu_ptr(o->dst), at, o->dst_dtype);
			const float *old =
			        o->accumulate ? cpu_load(k, was, cpu_ptr(o->dst), at, n, o->dst_dtype) : NULL;
			float part[CPU_CHUNK];

			dropped(part,
			        cpu_load(k, from, cpu_ptr(o->src), r * o->src_stride + c, n, o->src_dtype),
			        noise_row(key[r], o->module), c, n, limit, scale);
			for (int64_t i = 0; i < n; i++)
				out[i] = old ? old[i] + part[i] : part[i];
			cpu_store(k, cpu_ptr(o->dst), at, out, n, o->dst_dtype);
		}
}

int cpu_dropout(struct cpu_context *cx, const struct op_dropout *op)
{
	struct op_dropout o = *op;

	cpu_run(cx, cpu_pieces(o.rows, NOISE_ROWS), dropout_piece, &o);
	return 0;
}

static void neftune_piece(void *context, int64_t piece, int worker)
{
	const struct op_neftune *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	const uint64_t *key = cpu_ptr(o->key);
	const int32_t *start = cpu_ptr(o->doc_start), *stop = cpu_ptr(o->doc_end);
	int64_t end = min_i64((piece + 1) * NOISE_ROWS, o->rows);
	float x[CPU_CHUNK], y[CPU_CHUNK];

	(void)worker;
	for (int64_t r = piece * NOISE_ROWS; r < end; r++) {
		const uint64_t row = noise_row(key[r], 0);
		const float most = (float)(o->alpha / sqrt((double)(stop[r] - start[r]) * (double)o->cols));

		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
			int64_t n = min_i64(CPU_CHUNK, o->cols - c), at = r * o->cols + c;
			float *out = cpu_out(y, cpu_ptr(o->x), at, o->dtype);
			const float *in = cpu_load(k, x, cpu_ptr(o->x), at, n, o->dtype);

			for (int64_t i = 0; i < n; i++)
				out[i] = in[i] + most * noise_uniform(noise_bits(row, c + i));
			cpu_store(k, cpu_ptr(o->x), at, out, n, o->dtype);
		}
	}
}

int cpu_neftune(struct cpu_context *cx, const struct op_neftune *op)
{
	struct op_neftune o = *op;

	cpu_run(cx, cpu_pieces(o.rows, NOISE_ROWS), neftune_piece, &o);
	return 0;
}
