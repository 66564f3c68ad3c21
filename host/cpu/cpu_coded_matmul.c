/* Products of FP8 on fixed tiles of c: exact terms, fp32 sums of each block of k, then its scales. */
#include "device/op_coded.h"

#include "base/err.h"
#include "host/cpu/cpu_inner.h"
#include "host/cpu/matmul.h"
#include "host/cpu/matmul_amx.h"
#include "host/cpu/matmul_avx512bf16.h"
#include "host/cpu/matmul_bfmmla.h"

#include <string.h>

OP_CODED_LIST(CPU_DECLARE)

/* Tiles depend on the shape alone, because libraries sum in another order if m or n differ. A tile has
 * columns of one block of b, so each of its rows has one scale. */
enum { ROWS = 128 };

/* A worker's memory: the tile of c, a block's sums, and values of codes of both operands. */
enum { TILE = ROWS * CODE_BLOCK, WORKER_COUNT = 4 * TILE };

struct coded_product {
	const struct op_coded_matmul *o;
	int64_t columns, lead_k, lead_n, blocks_k,
	        across; /* blocks of columns, of k, of a row of b's scales */
	float *scratch;
	matmul_bf16 *own; /* NULL: values are fp32 */
	uint16_t value_bf16[256];
	const float *value;
};

/* From `first` on, `count` elements of a side, cut by blocks. */
struct span {
	int64_t first, count;
};

static struct span span_of(int64_t block, int64_t lead, int64_t count)
{
	int64_t first = max_i64(block * CODE_BLOCK - lead, 0);

	return (struct span){first, min_i64((block + 1) * CODE_BLOCK - lead, count) - first};
}

/* Values of rows x cols codes, without gaps: bf16 has them all exactly. */
static void values_put(const struct coded_product *p, void *dst, const uint8_t *codes, int64_t stride,
        int64_t rows, int64_t cols)
{
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < cols; c++)
			if (p->own)
				((uint16_t *)dst)[r * cols + c] = p->value_bf16[codes[r * stride + c]];
			else
				((float *)dst)[r * cols + c] = p->value[codes[r * stride + c]];
}

/* sums[m,n] of the values of a block of k. */
static void block_product(const struct coded_product *p, float *sums, const void *a, const void *b, int64_t m,
        int64_t n, int64_t k)
{
	enum matmul_layout layout = p->o->b_layout;
	int64_t b_stride = layout == MATMUL_TRANSPOSED ? k : n;

	if (p->own)
		p->own(&(struct matmul_product){.c = sums,
		        .a = a,
		        .b = b,
		        .m = m,
		        .n = n,
		        .k = k,
		        .c_stride = n,
		        .a_stride = k,
		        .b_stride = b_stride,
		        .a_layout = MATMUL_NORMAL,
		        .b_layout = layout});
	else
		cpu_sgemm(sums, a, b, m, n, k, n, k, b_stride, MATMUL_NORMAL, layout, 1, 0);
}

/* c += sums * (scale of a's row * scale of b's square) */
static void sums_add(float *c, const float *sums, const float *a_scale, int64_t a_stride, float b_scale,
        int64_t m, int64_t n)
{
	for (int64_t i = 0; i < m; i++) {
		float scale = a_scale[i * a_stride] * b_scale;

		for (int64_t j = 0; j < n; j++)
			c[i * n + j] += sums[i * n + j] * scale;
	}
}

static void tile_store(const struct op_coded_matmul *o, float *c, struct span rows, struct span columns)
{
	const struct cpu_kernels *k = cpu_kernels();
	int64_t n = columns.count;
	float buffer[CODE_BLOCK];
	const float *bias = NULL;

	for (int64_t i = 0; i < rows.count; i++) {
		int64_t at = (rows.first + i) * o->c_stride + columns.first;

		if (!dev_is_none(o->bias))
			bias = cpu_load(k, buffer, cpu_ptr(o->bias), columns.first, n, o->bias_dtype);
		if (o->accumulate)
			bias = cpu_load(k, buffer, cpu_ptr(o->c), at, n, o->c_dtype);
		if (bias)
			k->add(c + i * n, c + i * n, bias, n);
		if (o->c_dtype == DTYPE_F32)
			memcpy((float *)cpu_ptr(o->c) + at, c + i * n, (size_t)n * sizeof(*c));
		cpu_store(k, cpu_ptr(o->c), at, c + i * n, n, o->c_dtype);
	}
}

static void product_piece(void *context, int64_t piece, int worker)
{
	const struct coded_product *p = context;
	const struct op_coded_matmul *o = p->o;
	int turned = o->b_layout == MATMUL_TRANSPOSED;
	int64_t column = piece % p->columns;
	struct span rows = {piece / p->columns * ROWS, min_i64(ROWS, o->m - piece / p->columns * ROWS)},
	            columns = span_of(column, p->lead_n, o->n);
	float *c = p->scratch + worker * WORKER_COUNT, *sums = c + TILE, *a = sums + TILE, *b = a + TILE;
	const float *a_scales = (const float *)cpu_ptr(o->a_scales) + rows.first * p->blocks_k,
	            *b_scales = cpu_ptr(o->b_scales);

	memset(c, 0, (size_t)(rows.count * columns.count) * sizeof(*c));
	for (int64_t block = 0; block < p->blocks_k; block++) {
		struct span k = span_of(block, p->lead_k, o->k), down = turned ? columns : k,
		            along = turned ? k : columns;
		int64_t stride = turned ? o->k : o->n;

		values_put(p, a, (const uint8_t *)cpu_ptr(o->a) + rows.first * o->k + k.first, o->k,
		        rows.count, k.count);
		values_put(p, b, (const uint8_t *)cpu_ptr(o->b) + down.first * stride + along.first, stride,
		        down.count, along.count);
		block_product(p, sums, a, b, rows.count, columns.count, k.count);
		sums_add(c, sums, a_scales + block, p->blocks_k,
		        b_scales[turned ? column * p->across + block : block * p->across + column],
		        rows.count, columns.count);
	}
	tile_store(o, c, rows, columns);
}

/* ferry's own kernels for bf16, or NULL. */
static matmul_bf16 *own_product(void)
{
	switch (matmul_choice(DTYPE_BF16)->way) {
	case MATMUL_AVX512BF16:
		return matmul_avx512bf16;
	case MATMUL_AMX:
		return matmul_amx;
	case MATMUL_BFMMLA:
		return matmul_bfmmla;
	default:
		return NULL;
	}
}

int cpu_coded_matmul(struct cpu_context *cx, const struct op_coded_matmul *op)
{
	int turned = op->b_layout == MATMUL_TRANSPOSED;
	struct coded_product p = {.o = op,
	        .lead_k = turned ? 0 : op->b_lead,
	        .lead_n = turned ? op->b_lead : 0,
	        .own = own_product(),
	        .value = code_values(CODE_E4M3)};

	p.columns = coded_blocks(p.lead_n, op->n);
	p.blocks_k = coded_blocks(p.lead_k, op->k);
	p.across = turned ? p.blocks_k : p.columns;
	for (int i = 0; i < 256; i++)
		p.value_bf16[i] = bf16_from_f32(p.value[i]);
	p.scratch = cpu_scratch(cx, (int64_t)cpu_workers(cx) * WORKER_COUNT * (int64_t)sizeof(float));
	if (!p.scratch)
		return ERR_NOMEM;
	cpu_run(cx, cpu_pieces(op->m, ROWS) * p.columns, product_piece, &p);
	return 0;
}
