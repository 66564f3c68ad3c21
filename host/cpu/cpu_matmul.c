/* Matrix products on fixed tiles of c. */
#include "device/op_matmul.h"
#include "host/cpu/matmul.h"

#include "base/err.h"
#include "host/cpu/cpu_inner.h"
#include "host/cpu/matmul_amx.h"
#include "host/cpu/matmul_avx2.h"
#include "host/cpu/matmul_bfmmla.h"
#include "host/cpu/matmul_onednn.h"

#include <string.h>

OP_MATMUL_LIST(CPU_DECLARE)

/* Depth of the widened panels. Both panels of a 256 x 256 tile take 1 MiB. */
enum { PANEL_K = 512 };

/* Tiles are at most 256 x 512. They shrink until there are a dozen, unless a piece would be too little work
 * for waking a thread and packing operands. If there are few tiles, a long k is cut as well (gradients of
 * narrow weights, the head's input). Its parts are summed afterwards. */
void matmul_tiling(struct matmul_tiling *t, int64_t m, int64_t n, int64_t k)
{
	int64_t parts_m = cpu_pieces(m, 256), parts_n = cpu_pieces(n, 512), parts_k = 1;

	if (k >= 4096 && parts_m * parts_n < 12)
		parts_k = min_i64(cpu_pieces(12, parts_m * parts_n), k / 2048);
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
	t->k = cpu_pieces(k, parts_k);
	t->count_m = cpu_pieces(m, t->m);
	t->count_n = cpu_pieces(n, t->n);
	t->count_k = cpu_pieces(k, t->k);
}

/* One thread computes each tile, so an element sees the same additions in the same order whatever the thread
 * count. matmul_choice chooses the kernels. If they cannot multiply bf16, both operands are widened to fp32,
 * in panels in a worker's scratch or while they are packed. The products are then exact, and c is rounded
 * once. */
struct matmul_run {
	struct op_matmul op;
	struct matmul_tiling tiling;
	float *parts;   /* if k is cut: [count_k, m, n] */
	float *scratch; /* per worker: tile of c; then panels of a and b, oneDNN's scratch, or bias */
	int64_t scratch_count;
	int by_panels; /* bf16 is widened in panels */
	/* for oneDNN: one for each tile_kind that occurs; else NULL */
	struct onednn_product *products[8];
	int failed;
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

/* Completes a tile after its sums: adds bias, and rounds if the op's c is bf16. */
static void tile_finish(
        const struct op_matmul *o, const struct tile *t, float *c, int64_t c_stride, float *bias_buffer)
{
	const struct cpu_kernels *k = cpu_kernels();

	if (!dev_is_none(o->bias)) {
		const float *bias = cpu_load(k, bias_buffer, cpu_ptr(o->bias), t->j, t->n, o->ab_dtype);

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

/* The index of a piece's product: a bit each if it is cut short in m, n and k. */
static int tile_kind(const struct matmul_tiling *g, const struct tile *t)
{
	return (t->m < g->m) | (t->n < g->n) << 1 | (t->k < g->k) << 2;
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

static void matmul_piece(void *context, int64_t piece, int worker)
{
	struct matmul_run *run = context;
	const struct op_matmul *o = &run->op;
	float *buffer = run->scratch + run->scratch_count * worker,
	      *rest = buffer + round_up(run->tiling.m * run->tiling.n, 16);
	int cut = run->tiling.count_k > 1, accumulate = o->accumulate && !cut, rc = 0;
	enum matmul_way way = matmul_choice(o->ab_dtype)->way;
	const void *a, *b;
	struct tile t;
	int64_t c_stride;
	float *c;

	tile_find(&t, run, piece);
	c = tile_target(run, &t, buffer, &c_stride);
	a = operand_at(o->a, t.i, t.l, o->a_stride, o->a_layout, o->ab_dtype);
	b = operand_at(o->b, t.l, t.j, o->b_stride, o->b_layout, o->ab_dtype);
	if (run->products[0])
		rc = onednn_product_run(run->products[tile_kind(&run->tiling, &t)], c, a, b, rest);
	else if (run->by_panels)
		tile_product_bf16(run, &t, c, c_stride, rest, accumulate);
	else if (o->ab_dtype == DTYPE_BF16 && way == MATMUL_AMX)
		matmul_amx(c, a, b, t.m, t.n, t.k, c_stride, o->a_stride, o->b_stride, o->a_layout,
		        o->b_layout, accumulate);
	else if (o->ab_dtype == DTYPE_BF16 && way == MATMUL_BFMMLA)
		matmul_bfmmla(c, a, b, t.m, t.n, t.k, c_stride, o->a_stride, o->b_stride, o->a_layout,
		        o->b_layout, accumulate);
	else if (o->ab_dtype == DTYPE_BF16)
		matmul_avx2(c, a, b, t.m, t.n, t.k, c_stride, o->a_stride, o->b_stride, o->a_layout,
		        o->b_layout, DTYPE_BF16, 1, accumulate);
	else
		cpu_sgemm(c, a, b, t.m, t.n, t.k, c_stride, o->a_stride, o->b_stride, o->a_layout,
		        o->b_layout, 1, accumulate);
	if (rc < 0)
		__atomic_store_n(&run->failed, 1, __ATOMIC_RELAXED);
	if (!cut)
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
		if (o->accumulate)
			k->add(c, c, out, t.n);
		tile_finish(o, &t, c, o->n, buffer);
		if (o->c_dtype == DTYPE_F32)
			memcpy(out, c, (size_t)t.n * sizeof *c);
	}
}

static void products_close(struct matmul_run *run)
{
	for (int kind = 0; kind < 8; kind++) {
		onednn_product_close(run->products[kind]);
		run->products[kind] = NULL;
	}
}

/* Opens products for all kinds of pieces or for none. The first piece is never cut short, so products[0] is
 * set if any is. */
static void products_open(struct matmul_run *run)
{
	const struct op_matmul *o = &run->op;
	const struct matmul_tiling *g = &run->tiling;

	for (int64_t piece = 0; piece < g->count_m * g->count_n * g->count_k; piece++) {
		struct tile t;
		int64_t c_stride;
		int kind;

		tile_find(&t, run, piece);
		tile_target(run, &t, NULL, &c_stride);
		kind = tile_kind(g, &t);
		if (run->products[kind])
			continue;
		run->products[kind] =
		        onednn_product_open(o, t.m, t.n, t.k, c_stride, o->accumulate && g->count_k == 1);
		if (!run->products[kind]) {
			products_close(run);
			return;
		}
	}
}

static int64_t piece_scratch_count(const struct matmul_run *run)
{
	const struct matmul_tiling *g = &run->tiling;
	int64_t rest = run->by_panels ? (g->m + g->n) * PANEL_K : g->n;

	for (int kind = 0; kind < 8; kind++)
		if (run->products[kind] && onednn_product_scratch_bytes(run->products[kind]) > rest * 4)
			rest = onednn_product_scratch_bytes(run->products[kind]) / 4 + 1;
	return round_up(g->m * g->n, 16) + round_up(rest, 16);
}

int cpu_matmul(struct cpu_context *cx, const struct op_matmul *op)
{
	struct matmul_run run = {.op = *op};
	const struct op_matmul *o = &run.op;
	const struct matmul_tiling *g = &run.tiling;
	enum matmul_way way = matmul_choice(o->ab_dtype)->way;
	int64_t parts_count;

	matmul_tiling(&run.tiling, o->m, o->n, o->k);
	if (o->ab_dtype == DTYPE_BF16 && way == MATMUL_ONEDNN)
		products_open(&run);
	run.by_panels = o->ab_dtype == DTYPE_BF16 && !run.products[0] &&
	                (way == MATMUL_WIDENED || way == MATMUL_ONEDNN);
	parts_count = g->count_k > 1 ? round_up(g->count_k * o->m * o->n, 16) : 0;
	run.scratch_count = piece_scratch_count(&run);
	run.parts = cpu_scratch(cx, (parts_count + run.scratch_count * cpu_workers(cx)) * 4);
	if (run.parts) {
		run.scratch = run.parts + parts_count;
		cpu_run(cx, g->count_m * g->count_n * g->count_k, matmul_piece, &run);
		if (g->count_k > 1)
			cpu_run(cx, o->m, combine_piece, &run);
	}
	products_close(&run);
	if (run.failed)
		return err_set(ERR_DEVICE, "matmul: oneDNN could not run a product that it had accepted");
	return run.parts ? 0 : ERR_NOMEM;
}
