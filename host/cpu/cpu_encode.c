/* Rows to codes of E4M3, with a scale for each block. */
#include "device/op_coded.h"
#include "host/cpu/cpu_inner.h"
#include "optim/weight_nearest.h"

OP_CODED_LIST(CPU_DECLARE)

struct encode {
	const struct op_encode *o;
	int64_t blocks;
};

/* The bits of the largest size; a NaN is larger than all numbers. */
static uint32_t largest_of(const float *x, int64_t n, uint32_t most)
{
	int32_t largest = (int32_t)most;

	for (int64_t i = 0; i < n; i++) {
		int32_t size = (int32_t)(f32_bits(x[i]) & 0x7fffffff);

		largest = size > largest ? size : largest;
	}
	return (uint32_t)largest;
}

/* A row of blocks. */
static void encode_piece(void *context, int64_t piece, int worker)
{
	const struct encode *e = context;
	const struct op_encode *o = e->o;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t first = piece * o->block_rows, end = min_i64(first + o->block_rows, o->rows);
	float *scales = (float *)cpu_ptr(o->scales) + piece * e->blocks, buffer[CODE_BLOCK];

	(void)worker;
	for (int64_t b = 0; b < e->blocks; b++) {
		int64_t at = max_i64(b * CODE_BLOCK - o->lead, 0),
		        n = min_i64((b + 1) * CODE_BLOCK - o->lead, o->cols) - at;
		uint32_t most = 0;
		const float *x = buffer;

		for (int64_t r = first; r < end; r++) {
			x = cpu_load(k, buffer, cpu_ptr(o->src), r * o->src_stride + at, n, o->src_dtype);
			most = largest_of(x, n, most);
		}
		scales[b] = code_e4m3_scale(most);
		for (int64_t r = first; r < end; r++) {
			if (end - first > 1)
				x = cpu_load(
				        k, buffer, cpu_ptr(o->src), r * o->src_stride + at, n, o->src_dtype);
			weight_nearest_kernels()->e4m3(
			        (uint8_t *)cpu_ptr(o->codes) + r * o->cols + at, x, scales[b], n);
		}
	}
}

int cpu_encode(struct cpu_context *cx, const struct op_encode *op)
{
	struct encode e = {op, coded_blocks(op->lead, op->cols)};

	cpu_run(cx, cpu_pieces(op->rows, op->block_rows), encode_piece, &e);
	return 0;
}
