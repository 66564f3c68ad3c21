/* Matrix products on fixed tiles of c. */
#include "device/op_matmul.h"
#include "host/cpu/matmul.h"

#include "base/err.h"
#include "host/cpu/cpu_inner.h"
#include "host/cpu/matmul_amx.h"
#include "host/cpu/matmul_avx2.h"
#include "host/cpu/matmul_avx512bf16.h"
#include "host/cpu/matmul_bfmmla.h"

#include <string.h>

OP_MATMUL_LIST(CPU_DECLARE)

/* Depth of the widened panels. Both panels of a 256 x 256 tile take 1 MiB. */
enum { PANEL_K = 512 };

/* At most so many rows of a are multiplied by rows of b as they are stored. With more, packing b costs less.
 */
enum { FEW_ROWS_F32 = 1, FEW_ROWS_BF16 = 3 };

/* The work of a piece for each of k: its products, and packing, which costs as much as PACKING products for
 * each row and column. The first columns wait for memory, as if there were START more. */
static int64_t piece_cost(const struct matmul_tiling *t)
{
	enum { PACKING = 10, START = 64 };

	return t->m * t->n + PACKING * (t->m + t->n + START);
}

/* How long the slowest worker takes, and an eighth of a piece for pieces that end late. */
static int64_t tiling_cost(const struct matmul_tiling *t, int workers)
{
	int64_t piece = piece_cost(t);

	return cpu_pieces(t->count_m * t->count_n * t->count_k, workers) * piece + piece / 8;
}

/* Tiles for ferry's own kernels, whose bits do not depend on m and n: the cheapest of at most 256 x 1024.
 * Smaller ones must be enough work for waking a thread. */
static void tiling_for_workers(struct matmul_tiling *best, int64_t m, int64_t n, int workers)
{
	int64_t most = 8 * workers, least_m = cpu_pieces(m, 256), least_n = cpu_pieces(n, 1024);
	struct matmul_tiling t = *best;

	best->count_m = 0;
	for (int64_t parts_m = least_m; parts_m == least_m || parts_m <= most; parts_m++)
		for (int64_t parts_n = least_n; parts_n == least_n || parts_m * parts_n <= most; parts_n++) {
			t.m = min_i64(m, round_up(cpu_pieces(m, parts_m), 32));
			t.n = min_i64(n, round_up(cpu_pieces(n, parts_n), 64));
			t.count_m = cpu_pieces(m, t.m);
			t.count_n = cpu_pieces(n, t.n);
			if (!best->count_m || (piece_cost(&t) * t.k >= 1 << 20 &&
			                              tiling_cost(&t, workers) < tiling_cost(best, workers)))
				*best = t;
		}
}

/* Libraries sum in another order if m or n differ, so their tiles depend on the shape alone: at most 256 x
 * 512, and a dozen, unless a piece would be too little work for waking a thread and packing operands. If
 * there are few tiles, a long k is cut as well (gradients of narrow weights, the head's input), for every
 * kernel by the shape alone. Its parts are summed afterwards. */
void matmul_tiling(struct matmul_tiling *t, int64_t m, int64_t n, int64_t k, int workers)
{
	int64_t parts_m = cpu_pieces(m, 256), parts_n = cpu_pieces(n, 512), parts_k = 1;

	if (k >= 4096 && parts_m * parts_n < 12)
		parts_k = min_i64(cpu_pieces(12, parts_m * parts_n), k / 2048);
	t->k = cpu_pieces(k, parts_k);
	t->count_k = cpu_pieces(k, t->k);
	if (workers) {
		tiling_for_workers(t, m, n, workers);
		return;
	}
	while (parts_m * parts_n * parts_k < 12) {
		int by_n = cpu_pieces(n, parts_n) >= cpu_pieces(m, parts_m);
		int64_t tile = cpu_pieces(m, parts_m + !by_n) * cpu_pieces(n, parts_n + by_n);

		if (tile < 6144 || tile * cpu_pieces(k, parts_k) < 1 << 20)
			break;
		parts_n += by_n;
		parts_m += !by_n;
	}
	t->m = min_i64(m, round_up(cpu_pieces(m, parts_m), 16));
	t->n = min_i64(n, round_up(cpu_pieces(n, parts_n), 16));
	t->count_m = cpu_pieces(m, t->m);
	t->count_n = cpu_pieces(n, t->n);
}

/* One thread computes each tile, and an element sees the same additions in the same order whatever the thread
 * count. matmul_choice chooses the kernels. If they cannot multiply bf16, both operands are widened to fp32,
 * in panels in a worker's scratch or while they are packed. The products are then exact, and c is rounded
 * once. */
struct matmul_run {
	struct op_matmul op;
	struct matmul_tiling tiling;
	int64_t piece_end; /* of the pieces of this product and those before it */
	float *parts;      /* if k is cut: [count_k, m, n] */
	int by_rows;       /* elements of c are dot products of stored rows */
	int by_panels;     /* bf16 is widened in panels */
};

/* Products that share the workers. */
struct matmul_batch {
	struct matmul_run *runs;
	int64_t run_count;
	float *scratch; /* per worker: tile of c; then panels of a and b, or bias */
	int64_t scratch_count;
};

/* A piece: rows [i, i + m) and columns [j, j + n) of c, summed over [l, l + k). */
struct tile {
	int64_t i, j, l, m, n, k;
};

/* Widens indices [at_tile, at_tile + tile_count) of the tile and [at_k, at_k + k_count) of k of an operand.
 * In the layout row_is_tile a stored row belongs to an index of the tile, else to one of k. */
static const float *matmul_panel(float *panel, int64_t *panel_stride, const void *x, int64_t stride,
        enum matmul_layout layout, enum matmul_layout row_is_tile, int64_t at_tile, int64_t tile_count,
        int64_t at_k, int64_t k_count)
{
	const struct cpu_kernels *k = cpu_kernels();
	int64_t row = layout == row_is_tile ? at_tile : at_k,
	        rows = layout == row_is_tile ? tile_count : k_count;
	int64_t col = layout == row_is_tile ? at_k : at_tile,
	        cols = layout == row_is_tile ? k_count : tile_count;

	*panel_stride = cols;
	for (int64_t r = 0; r < rows; r++)
		k->widen(panel + r * cols, (const uint16_t *)x + (row + r) * stride + col, cols);
	return panel;
}

static void tile_product_bf16(const struct matmul_run *run, const struct tile *t, float *c, int64_t c_stride,
        float *panels, float beta)
{
	const struct op_matmul *o = &run->op;
	float *a_panel = panels, *b_panel = panels + run->tiling.m * PANEL_K;

	for (int64_t at = t->l; at < t->l + t->k; at += PANEL_K) {
		int64_t depth = min_i64(PANEL_K, t->l + t->k - at), a_stride, b_stride;
		const float *a = matmul_panel(a_panel, &a_stride, cpu_ptr(o->a), o->a_stride, o->a_layout,
		        MATMUL_NORMAL, t->i, t->m, at, depth);
		const float *b = matmul_panel(b_panel, &b_stride, cpu_ptr(o->b), o->b_stride, o->b_layout,
		        MATMUL_TRANSPOSED, t->j, t->n, at, depth);

		cpu_sgemm(c, a, b, t->m, t->n, depth, c_stride, a_stride, b_stride, o->a_layout, o->b_layout,
		        1, at > t->l ? 1 : beta);
	}
}

/* Completes a tile after its sums: adds bias and, if the op's c is bf16, what it had before, and rounds. */
static void tile_finish(
        const struct op_matmul *o, const struct tile *t, float *c, int64_t c_stride, float *buffer)
{
	const struct cpu_kernels *k = cpu_kernels();

	for (int64_t r = 0; r < t->m && o->accumulate && o->c_dtype != DTYPE_F32; r++)
		k->add(c + r * c_stride, c + r * c_stride,
		        cpu_load(k, buffer, cpu_ptr(o->c), (t->i + r) * o->c_stride + t->j, t->n, o->c_dtype),
		        t->n);
	if (!dev_is_none(o->bias)) {
		const float *bias = cpu_load(k, buffer, cpu_ptr(o->bias), t->j, t->n, o->ab_dtype);

		for (int64_t r = 0; r < t->m; r++)
			k->add(c + r * c_stride, c + r * c_stride, bias, t->n);
	}
	for (int64_t r = 0; r < t->m; r++)
		cpu_store(k, cpu_ptr(o->c), (t->i + r) * o->c_stride + t->j, c + r * c_stride, t->n,
		        o->c_dtype);
}

static void tile_find(struct tile *t, const struct matmul_run *run, int64_t piece)
{
	const struct op_matmul *o = &run->op;
	const struct matmul_tiling *g = &run->tiling;

	t->j = piece % g->count_n * g->n;
	t->i = piece / g->count_n % g->count_m * g->m;
	t->l = piece / g->count_n / g->count_m * g->k;
	t->m = min_i64(g->m, o->m - t->i);
	t->n = min_i64(g->n, o->n - t->j);
	t->k = min_i64(g->k, o->k - t->l);
}

/* The place for the sums of a piece: its part, c itself, or the worker's buffer. */
static float *tile_target(const struct matmul_run *run, const struct tile *t, float *buffer, int64_t *stride)
{
	const struct op_matmul *o = &run->op;

	if (run->tiling.count_k > 1) {
		*stride = o->n;
		return run->parts + t->l / run->tiling.k * o->m * o->n + t->i * o->n + t->j;
	}
	if (o->c_dtype == DTYPE_F32) {
		*stride = o->c_stride;
		return (float *)cpu_ptr(o->c) + t->i * o->c_stride + t->j;
	}
	*stride = t->n;
	return buffer;
}

static const void *operand_at(
        dev_addr x, int64_t row, int64_t col, int64_t stride, enum matmul_layout layout, enum dtype dtype)
{
	return (const char *)cpu_ptr(x) +
	       (layout == MATMUL_NORMAL ? row * stride + col : col * stride + row) * dtype_bytes(dtype);
}

/* For few rows of a, as of a token over a cache: b is read once and in order, at the rate of memory. */
static void tile_product_of_rows(
        const struct op_matmul *o, const struct tile *t, float *c, int64_t c_stride, int accumulate)
{
	const struct cpu_kernels *k = cpu_kernels();

	for (int64_t j = 0; j < t->n; j++)
		for (int64_t i = 0; i < t->m; i++) {
			const void *a =
			        operand_at(o->a, t->i + i, t->l, o->a_stride, o->a_layout, o->ab_dtype);
			const void *b =
			        operand_at(o->b, t->l, t->j + j, o->b_stride, o->b_layout, o->ab_dtype);
			float *to = c + i * c_stride + j;
			float sum = o->ab_dtype == DTYPE_F32 ? (float)k->dot(a, b, t->k)
			                                     : k->dot_bf16(a, b, t->k);

			*to = accumulate ? *to + sum : sum;
		}
}

/* ferry's own kernels for bf16, or NULL. */
static matmul_bf16 *own_product(enum matmul_way way)
{
	return way == MATMUL_AVX512BF16 ? matmul_avx512bf16
	       : way == MATMUL_AMX      ? matmul_amx
	       : way == MATMUL_BFMMLA   ? matmul_bfmmla
	                                : NULL;
}

/* The product that a piece belongs to, and the piece's number in it. */
static const struct matmul_run *run_of(const struct matmul_batch *batch, int64_t *piece)
{
	int64_t low = 0, high = batch->run_count - 1;

	while (low < high) {
		int64_t middle = (low + high) / 2;

		if (*piece < batch->runs[middle].piece_end)
			high = middle;
		else
			low = middle + 1;
	}
	*piece -= low ? batch->runs[low - 1].piece_end : 0;
	return &batch->runs[low];
}

static void matmul_piece(void *context, int64_t piece, int worker)
{
	const struct matmul_batch *batch = context;
	const struct matmul_run *run = run_of(batch, &piece);
	const struct op_matmul *o = &run->op;
	float *buffer = batch->scratch + batch->scratch_count * worker,
	      *rest = buffer + round_up(run->tiling.m * run->tiling.n, 16);
	int cut = run->tiling.count_k > 1, accumulate = o->accumulate && !cut && o->c_dtype == DTYPE_F32;
	matmul_bf16 *own = run->by_rows ? NULL : own_product(matmul_choice(o->ab_dtype)->way);
	const void *a, *b;
	uint16_t *rounded = NULL;
	struct tile t;
	int64_t c_stride;
	float *c;

	tile_find(&t, run, piece);
	c = tile_target(run, &t, buffer, &c_stride);
	a = operand_at(o->a, t.i, t.l, o->a_stride, o->a_layout, o->ab_dtype);
	b = operand_at(o->b, t.l, t.j, o->b_stride, o->b_layout, o->ab_dtype);
	if (own && c == buffer && dev_is_none(o->bias) && !o->accumulate)
		rounded = (uint16_t *)cpu_ptr(o->c) + t.i * o->c_stride + t.j;
	if (run->by_rows)
		tile_product_of_rows(o, &t, c, c_stride, accumulate);
	else if (own)
		own(&(struct matmul_product){.c = c,
		        .rounded = rounded,
		        .a = a,
		        .b = b,
		        .m = t.m,
		        .n = t.n,
		        .k = t.k,
		        .c_stride = c_stride,
		        .rounded_stride = o->c_stride,
		        .a_stride = o->a_stride,
		        .b_stride = o->b_stride,
		        .a_layout = o->a_layout,
		        .b_layout = o->b_layout,
		        .accumulate = accumulate});
	else if (run->by_panels)
		tile_product_bf16(run, &t, c, c_stride, rest, accumulate);
	else if (o->ab_dtype == DTYPE_BF16)
		matmul_avx2(c, a, b, t.m, t.n, t.k, c_stride, o->a_stride, o->b_stride, o->a_layout,
		        o->b_layout, DTYPE_BF16, 1, accumulate);
	else
		cpu_sgemm(c, a, b, t.m, t.n, t.k, c_stride, o->a_stride, o->b_stride, o->a_layout,
		        o->b_layout, 1, accumulate);
	if (!cut && !rounded)
		tile_finish(o, &t, c, c_stride, rest);
}

/* Sums the parts of one row of c. */
static void combine_piece(void *context, int64_t row, int worker)
{
	const struct matmul_run *run = context;
	const struct op_matmul *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	struct tile t = {.i = row, .m = 1};
	float buffer[CPU_CHUNK];

	(void)worker;
	for (t.j = 0; t.j < o->n; t.j += CPU_CHUNK) {
		float *c = run->parts + row * o->n + t.j,
		      *out = (float *)cpu_ptr(o->c) + row * o->c_stride + t.j;

		t.n = min_i64(CPU_CHUNK, o->n - t.j);
		for (int64_t l = 1; l < run->tiling.count_k; l++)
			k->add(c, c, c + l * o->m * o->n, t.n);
		if (o->accumulate && o->c_dtype == DTYPE_F32)
			k->add(c, c, out, t.n);
		tile_finish(o, &t, c, o->n, buffer);
		if (o->c_dtype == DTYPE_F32)
			memcpy(out, c, (size_t)t.n * sizeof *c);
	}
}

static int is_own_way(enum matmul_way way)
{
	return way == MATMUL_AVX2 || own_product(way);
}

static void run_begin(struct matmul_run *run, int workers)
{
	const struct op_matmul *o = &run->op;
	enum matmul_way way = matmul_choice(o->ab_dtype)->way;

	run->by_rows = o->m <= (o->ab_dtype == DTYPE_F32 ? FEW_ROWS_F32 : FEW_ROWS_BF16) &&
	               o->a_layout == MATMUL_NORMAL && o->b_layout == MATMUL_TRANSPOSED;
	run->by_panels = !run->by_rows && way == MATMUL_WIDENED;
	matmul_tiling(&run->tiling, o->m, o->n, o->k, run->by_rows || is_own_way(way) ? workers : 0);
}

/* The scratch of a worker, for a run. */
static int64_t run_scratch_count(const struct matmul_run *run)
{
	const struct matmul_tiling *g = &run->tiling;

	return round_up(g->m * g->n, 16) + round_up(run->by_panels ? (g->m + g->n) * PANEL_K : g->n, 16);
}

int cpu_matmul(struct cpu_context *cx, const struct op_matmul *op)
{
	struct matmul_run run = {.op = *op};
	struct matmul_batch batch = {.runs = &run, .run_count = 1};
	const struct matmul_tiling *g = &run.tiling;
	int64_t parts_count;

	run_begin(&run, cpu_workers(cx));
	parts_count = g->count_k > 1 ? round_up(g->count_k * op->m * op->n, 16) : 0;
	batch.scratch_count = run_scratch_count(&run);
	run.parts = cpu_scratch(cx, (parts_count + batch.scratch_count * cpu_workers(cx)) * 4);
	if (!run.parts)
		return ERR_NOMEM;
	batch.scratch = run.parts + parts_count;
	cpu_run(cx, g->count_m * g->count_n * g->count_k, matmul_piece, &batch);
	if (g->count_k > 1)
		cpu_run(cx, op->m, combine_piece, &run);
	return 0;
}

/* A product with a share of the work has that share of four pieces a worker. k is not cut: the parts of many
 * products would need much memory. */
static void run_begin_one_of_many(struct matmul_run *run, double share, int workers)
{
	int64_t k = run->op.k;

	run->op.k = min_i64(k, 4095);
	run_begin(run, (int)min_i64(workers, 1 + (int64_t)(4 * workers * share)));
	run->op.k = run->tiling.k = k;
}

int cpu_matmuls(struct cpu_context *cx, int64_t count, matmul_get *get, const void *context)
{
	int64_t runs_bytes = round_up(count * (int64_t)sizeof(struct matmul_run), 64), pieces = 0;
	struct matmul_batch batch = {.run_count = 0};
	struct op_matmul op;
	double work = 0;
	char *memory;

	for (int64_t i = 0; i < count; i++)
		work += get(&op, context, i) ? (double)op.m * (double)op.n * (double)op.k : 0;
	/* twice: scratch may move when it grows, and its size follows from the runs */
	for (int pass = 0; pass < 2; pass++) {
		memory = cpu_scratch(cx, runs_bytes + batch.scratch_count * cpu_workers(cx) * 4);
		if (!memory)
			return ERR_NOMEM;
		batch.runs = (struct matmul_run *)(void *)memory;
		batch.scratch = (float *)(void *)(memory + runs_bytes);
		batch.run_count = pieces = 0;
		for (int64_t i = 0; i < count; i++) {
			struct matmul_run *run = &batch.runs[batch.run_count];

			if (!get(&op, context, i))
				continue;
			*run = (struct matmul_run){.op = op};
			run_begin_one_of_many(
			        run, (double)op.m * (double)op.n * (double)op.k / work, cpu_workers(cx));
			run->piece_end = pieces += run->tiling.count_m * run->tiling.count_n;
			batch.scratch_count = max_i64(batch.scratch_count, run_scratch_count(run));
			batch.run_count++;
		}
	}
	if (batch.run_count)
		cpu_run(cx, pieces, matmul_piece, &batch);
	return 0;
}
