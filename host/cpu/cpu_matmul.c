/* Matrix products on fixed tiles of c, each computed whole by one thread: whatever the thread count, an
 * element sees the same additions in the same order.
 *
 * fp32 goes to OpenBLAS, which is asked for one thread per call. bf16 goes to oneDNN where the CPU multiplies
 * bf16 in vectors; elsewhere panels of both operands are widened to fp32 in a worker's scratch and go to
 * OpenBLAS as well, which is exact in the products and rounds c once. matmul_bf16_path decides.
 */
#include "host/cpu/matmul.h"

#include "base/err.h"
#include "host/cpu/cpu_inner.h"

#include <cblas.h>
#include <pthread.h>

/* Depth of the widened panels: both of a 256 x 256 tile then take 1 MiB. */
enum { PANEL_K = 512 };

static void matmul_start(void)
{
	openblas_set_num_threads(1);
}

void cpu_sgemm_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, matmul_start);
}

void cpu_sgemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, int64_t c_stride,
        int64_t a_stride, int64_t b_stride, enum matmul_layout a_layout, enum matmul_layout b_layout,
        float alpha, float beta)
{
	cblas_sgemm(CblasRowMajor, a_layout == MATMUL_NORMAL ? CblasNoTrans : CblasTrans,
	        b_layout == MATMUL_NORMAL ? CblasNoTrans : CblasTrans, (int)m, (int)n, (int)k, alpha, a,
	        (int)a_stride, b, (int)b_stride, beta, c, (int)c_stride);
}

/* Tiles: at most 256 x 512, fewer rows and columns where that would leave a handful of pieces only. */
void matmul_tiling(int64_t *tile_m, int64_t *tile_n, int64_t m, int64_t n, int64_t k)
{
	int64_t tm = cpu_min(m, 256), tn = cpu_min(n, 512);

	(void)k;
	while (cpu_pieces(m, tm) * cpu_pieces(n, tn) < 16 && (tm > 64 || tn > 64)) {
		if (tn >= tm)
			tn = round_up((tn + 1) / 2, 16);
		else
			tm = round_up((tm + 1) / 2, 16);
	}
	*tile_m = tm;
	*tile_n = tn;
}

struct matmul_run {
	struct op_matmul op;
	int64_t tile_m, tile_n, tiles_n;
	float *scratch; /* per worker: c tile, a panel, b panel, bias */
	int64_t scratch_count;
};

/* Rows [r0, r0 + rows) and k [k0, k0 + depth) of an operand whose row or column (by layout) is the tile's. */
static const float *matmul_panel(const struct cpu_kernels *k, float *panel, int64_t *panel_stride,
        const void *x, int64_t stride, enum matmul_layout layout, int64_t at_tile, int64_t tile_count,
        int64_t at_k, int64_t k_count, enum matmul_layout row_is_tile)
{
	int64_t row = layout == row_is_tile ? at_tile : at_k,
	        rows = layout == row_is_tile ? tile_count : k_count;
	int64_t col = layout == row_is_tile ? at_k : at_tile,
	        cols = layout == row_is_tile ? k_count : tile_count;

	*panel_stride = cols;
	for (int64_t r = 0; r < rows; r++)
		k->widen(panel + r * cols, (const uint16_t *)x + (row + r) * stride + col, cols);
	return panel;
}

static void matmul_tile_bf16(const struct matmul_run *run, float *c, int64_t c_stride, float *panels,
        int64_t i, int64_t j, int64_t m, int64_t n)
{
	const struct op_matmul *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	float *a_panel = panels, *b_panel = panels + run->tile_m * PANEL_K;

	for (int64_t at = 0; at < o->k; at += PANEL_K) {
		int64_t depth = cpu_min(PANEL_K, o->k - at), a_stride, b_stride;
		const float *a = matmul_panel(k, a_panel, &a_stride, cpu_ptr(o->a), o->a_stride, o->a_layout,
		        i, m, at, depth, MATMUL_NORMAL);
		const float *b = matmul_panel(k, b_panel, &b_stride, cpu_ptr(o->b), o->b_stride, o->b_layout,
		        j, n, at, depth, MATMUL_TRANSPOSED);

		cpu_sgemm(c, a, b, m, n, depth, c_stride, a_stride, b_stride, o->a_layout, o->b_layout, 1,
		        at || o->accumulate ? 1 : 0);
	}
}

static void matmul_piece(void *context, int64_t piece, int worker)
{
	const struct matmul_run *run = context;
	const struct op_matmul *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t i = piece / run->tiles_n * run->tile_m, j = piece % run->tiles_n * run->tile_n;
	int64_t m = cpu_min(run->tile_m, o->m - i), n = cpu_min(run->tile_n, o->n - j);
	float *tile = run->scratch + run->scratch_count * worker, *panels = tile + run->tile_m * run->tile_n;
	int in_place = o->c_dtype == DTYPE_F32;
	float *c = in_place ? (float *)cpu_ptr(o->c) + i * o->c_stride + j : tile;
	int64_t c_stride = in_place ? o->c_stride : n;

	if (o->ab_dtype == DTYPE_BF16) {
		matmul_tile_bf16(run, c, c_stride, panels, i, j, m, n);
	} else {
		const float *a = cpu_ptr(o->a), *b = cpu_ptr(o->b);

		a += o->a_layout == MATMUL_NORMAL ? i * o->a_stride : i;
		b += o->b_layout == MATMUL_NORMAL ? j : j * o->b_stride;
		cpu_sgemm(c, a, b, m, n, o->k, c_stride, o->a_stride, o->b_stride, o->a_layout, o->b_layout,
		        1, o->accumulate ? 1 : 0);
	}
	if (!dev_is_none(o->bias)) {
		const float *bias = cpu_load(k, panels, cpu_ptr(o->bias), j, n, o->ab_dtype);

		for (int64_t r = 0; r < m; r++)
			k->add(c + r * c_stride, c + r * c_stride, bias, n);
	}
	for (int64_t r = 0; r < m && !in_place; r++)
		k->narrow((uint16_t *)cpu_ptr(o->c) + (i + r) * o->c_stride + j, c + r * c_stride, n);
}

int cpu_matmul(struct cpu_context *cx, const struct op *op)
{
	struct matmul_run run = {.op = op->matmul};
	const struct op_matmul *o = &run.op;

	cpu_sgemm_init();
	matmul_tiling(&run.tile_m, &run.tile_n, o->m, o->n, o->k);
	run.tiles_n = cpu_pieces(o->n, run.tile_n);
	run.scratch_count = round_up(run.tile_m * run.tile_n + (run.tile_m + run.tile_n) * PANEL_K, 16);
	if (o->ab_dtype == DTYPE_BF16 || o->c_dtype == DTYPE_BF16) {
		run.scratch = cpu_scratch(cx, run.scratch_count * cpu_workers(cx) * 4);
		if (!run.scratch)
			return ERR_NOMEM;
	}
	cpu_run(cx, cpu_pieces(o->m, run.tile_m) * run.tiles_n, matmul_piece, &run);
	return 0;
}
