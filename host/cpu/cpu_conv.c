/* The short convolution over tokens, forward, backward and for generation. */
#include "device/op_recurrent.h"
#include "host/cpu/delta.h"

#include <string.h>

OP_RECURRENT_LIST(CPU_DECLARE)

/* Columns of a piece: they stay in the worker's cache for all of its tokens. */
enum { CONV_COLS = 256, CONV_TOKENS = 256 };

struct conv_run {
	struct op_conv op;
	int64_t col_pieces;
};

/* One row of columns as fp32 */
struct conv_row {
	float at[CONV_COLS];
};

/* weight[c][j] of `n` columns as rows by tap, and the bias. */
static void weights_load(
        float taps[CONV_TAPS_MAX][CONV_COLS], float *bias, const struct op_conv *o, int64_t first, int64_t n)
{
	const struct cpu_kernels *k = cpu_kernels();
	float buffer[CONV_TAPS_MAX];

	for (int64_t c = 0; c < n; c++) {
		const float *w =
		        cpu_load(k, buffer, cpu_ptr(o->weight), (first + c) * o->taps, o->taps, o->dtype);

		for (int64_t j = 0; j < o->taps; j++)
			taps[j][c] = w[j];
	}
	memset(bias, 0, (size_t)n * sizeof(*bias));
	if (!dev_is_none(o->bias))
		memcpy(bias, cpu_load(k, bias, cpu_ptr(o->bias), first, n, o->dtype),
		        (size_t)n * sizeof(*bias));
}

static void row_load(struct conv_row *row, const struct op_conv *o, int64_t token, int64_t first, int64_t n)
{
	const float *x =
	        cpu_load(cpu_kernels(), row->at, cpu_ptr(o->x), token * o->x_stride + first, n, o->dtype);

	if (x != row->at)
		memcpy(row->at, x, (size_t)n * sizeof(*x));
}

/* sum = bias + sum of taps. rows[j]: the input of tap j; NULL: zeros. */
static void taps_sum(float *sum, float (*taps)[CONV_COLS], const float *bias, const float *const *rows,
        int64_t count, int64_t n)
{
	memcpy(sum, bias, (size_t)n * sizeof(*sum));
	for (int64_t j = 0; j < count; j++)
		if (rows[j])
			cpu_kernels()->multiply_add(sum, taps[j], rows[j], n);
}

static void conv_piece(void *context, int64_t piece, int worker)
{
	const struct conv_run *run = context;
	const struct op_conv *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	const int32_t *doc_start = cpu_ptr(o->doc_start);
	int64_t first = piece % run->col_pieces * CONV_COLS, n = min_i64(CONV_COLS, o->cols - first);
	int64_t t = piece / run->col_pieces * CONV_TOKENS, end = min_i64(t + CONV_TOKENS, o->tokens);
	float taps[CONV_TAPS_MAX][CONV_COLS], bias[CONV_COLS], sum[CONV_COLS];
	struct conv_row ring[CONV_TAPS_MAX];
	const float *rows[CONV_TAPS_MAX];

	(void)worker;
	weights_load(taps, bias, o, first, n);
	for (int64_t before = max_i64(t - o->taps + 1, 0); before < t; before++)
		row_load(&ring[before % o->taps], o, before, first, n);
	for (; t < end; t++) {
		int64_t at = t * o->y_stride + first;
		float *y = cpu_out(sum, cpu_ptr(o->y), at, o->dtype);

		row_load(&ring[t % o->taps], o, t, first, n);
		for (int64_t j = 0; j < o->taps; j++) {
			int64_t from = t - (o->taps - 1) + j;

			rows[j] = from >= doc_start[t] ? ring[from % o->taps].at : NULL;
		}
		taps_sum(y, taps, bias, rows, o->taps, n);
		if (o->act == CONV_SILU)
			k->act(y, y, n, ACT_SILU);
		cpu_store(k, cpu_ptr(o->y), at, y, n, o->dtype);
	}
}

int cpu_conv(struct cpu_context *cx, const struct op_conv *o)
{
	struct conv_run run = {.op = *o, .col_pieces = cpu_pieces(o->cols, CONV_COLS)};
	int rc = delta_documents_check("conv", cpu_ptr(o->doc_start), o->tokens);

	if (rc)
		return rc;
	cpu_run(cx, run.col_pieces * cpu_pieces(o->tokens, CONV_TOKENS), conv_piece, &run);
	return 0;
}

/* ---- backward ---- */

struct conv_grad_run {
	struct op_conv_grad op;
	struct op_conv forward; /* the same, without y */
	int64_t col_pieces, blocks, block_tokens;
};

/* dy through the activation, for token t; the input rows are in the ring. */
static void sum_grad(float *ds, const struct conv_grad_run *run, float (*taps)[CONV_COLS], const float *bias,
        const float *const *rows, int64_t t, int64_t first, int64_t n)
{
	const struct op_conv_grad *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	float sum[CONV_COLS], buffer[CONV_COLS];
	const float *dy = cpu_load(k, buffer, cpu_ptr(o->dy), t * o->y_stride + first, n, o->dtype);

	if (o->act == CONV_PLAIN) {
		memcpy(ds, dy, (size_t)n * sizeof(*ds));
		return;
	}
	taps_sum(sum, taps, bias, rows, o->taps, n);
	k->act_grad(ds, dy, sum, n, ACT_SILU);
}

/* A block of tokens and columns: dx of its tokens, and its sums of dweight and dbias. Gradients of sums are
 * computed for the taps - 1 tokens behind the block too, whose inputs lie in it. */
static void conv_grad_piece(void *context, int64_t piece, int worker)
{
	const struct conv_grad_run *run = context;
	const struct op_conv_grad *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	const int32_t *doc_start = cpu_ptr(o->doc_start);
	int64_t block = piece / run->col_pieces, begin = block * run->block_tokens;
	int64_t first = piece % run->col_pieces * CONV_COLS, n = min_i64(CONV_COLS, o->cols - first);
	int64_t end = min_i64(begin + run->block_tokens, o->tokens),
	        stop = min_i64(end + o->taps - 1, o->tokens);
	float *partial = (float *)cpu_ptr(o->scratch) + block * o->cols * (o->taps + 1) + first;
	float taps[CONV_TAPS_MAX][CONV_COLS], bias[CONV_COLS], ds[CONV_COLS];
	struct conv_row ring[CONV_TAPS_MAX], dx[CONV_TAPS_MAX] = {0};
	const float *rows[CONV_TAPS_MAX];

	(void)worker;
	for (int64_t j = 0; j <= o->taps; j++)
		memset(partial + j * o->cols, 0, (size_t)n * sizeof(*partial));
	weights_load(taps, bias, &run->forward, first, n);
	for (int64_t before = max_i64(begin - o->taps + 1, 0); before < begin; before++)
		row_load(&ring[before % o->taps], &run->forward, before, first, n);
	for (int64_t t = begin; t < stop; t++) {
		int64_t done = t - (o->taps - 1);

		row_load(&ring[t % o->taps], &run->forward, t, first, n);
		memset(&dx[t % o->taps], 0, sizeof(dx[0]));
		for (int64_t j = 0; j < o->taps; j++)
			rows[j] = done + j >= doc_start[t] ? ring[(done + j + o->taps) % o->taps].at : NULL;
		sum_grad(ds, run, taps, bias, rows, t, first, n);
		for (int64_t j = 0; j < o->taps; j++) {
			if (rows[j])
				k->multiply_add(dx[(done + j) % o->taps].at, taps[j], ds, n);
			if (rows[j] && t < end)
				k->multiply_add(partial + j * o->cols, ds, rows[j], n);
		}
		if (t < end)
			k->add(partial + o->taps * o->cols, partial + o->taps * o->cols, ds, n);
		/* no later token reads an input that lies taps - 1 tokens back */
		for (int64_t at = t + 1 == stop ? max_i64(done, begin) : done;
		        at <= (t + 1 == stop ? t : done); at++) {
			int64_t place = at * o->x_stride + first;

			if (at < begin || at >= end)
				continue;
			if (o->dtype == DTYPE_F32)
				memcpy((float *)cpu_ptr(o->dx) + place, dx[at % o->taps].at,
				        (size_t)n * sizeof(float));
			else
				cpu_store(k, cpu_ptr(o->dx), place, dx[at % o->taps].at, n, o->dtype);
		}
	}
}

static void conv_grad_combine(void *context, int64_t piece, int worker)
{
	const struct conv_grad_run *run = context;
	const struct op_conv_grad *o = &run->op;
	int64_t c = piece * CONV_COLS, end = min_i64(c + CONV_COLS, o->cols), each = o->taps + 1;
	const float *partial = cpu_ptr(o->scratch);
	float *dweight = cpu_ptr(o->dweight), *dbias = cpu_ptr(o->dbias);

	(void)worker;
	for (; c < end; c++)
		for (int64_t j = 0; j < each; j++) {
			float *to = j < o->taps ? dweight + c * o->taps + j : dbias ? dbias + c : NULL;
			double sum = 0;

			for (int64_t b = 0; b < run->blocks; b++)
				sum += partial[(b * each + j) * o->cols + c];
			if (to)
				*to = (float)(*to + sum);
		}
}

int cpu_conv_grad(struct cpu_context *cx, const struct op_conv_grad *o)
{
	struct conv_grad_run run = {.op = *o,
	        .forward = {.x = o->x,
	                .weight = o->weight,
	                .bias = o->bias,
	                .doc_start = o->doc_start,
	                .tokens = o->tokens,
	                .cols = o->cols,
	                .taps = o->taps,
	                .x_stride = o->x_stride,
	                .dtype = o->dtype},
	        .col_pieces = cpu_pieces(o->cols, CONV_COLS)};
	int rc = delta_documents_check("conv_grad", cpu_ptr(o->doc_start), o->tokens);

	if (rc)
		return rc;
	run.blocks = conv_scratch_count(o->tokens, 1, 0);
	run.block_tokens = cpu_pieces(o->tokens, run.blocks);
	run.blocks = cpu_pieces(o->tokens, run.block_tokens);
	cpu_run(cx, run.col_pieces * run.blocks, conv_grad_piece, &run);
	cpu_run(cx, run.col_pieces, conv_grad_combine, &run);
	return 0;
}

/* ---- generation ---- */

static void conv_cached_piece(void *context, int64_t piece, int worker)
{
	const struct op_conv_cached *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	const int32_t *doc_start = cpu_ptr(o->doc_start), *doc_end = cpu_ptr(o->doc_end);
	struct op_conv forward = {.x = o->x,
	        .weight = o->weight,
	        .bias = o->bias,
	        .taps = o->taps,
	        .x_stride = o->x_stride,
	        .dtype = o->dtype};
	int64_t first = piece * CONV_COLS, n = min_i64(CONV_COLS, o->cols - first), kept = o->taps - 1;
	size_t bytes = (size_t)(n * dtype_bytes(o->dtype));
	float taps[CONV_TAPS_MAX][CONV_COLS], bias[CONV_COLS], sum[CONV_COLS];
	struct conv_row inputs[CONV_TAPS_MAX];
	const float *rows[CONV_TAPS_MAX];

	(void)worker;
	weights_load(taps, bias, &forward, first, n);
	for (int64_t t = 0; t < o->tokens; t++) {
		int64_t text = doc_start[t] / o->text_rows, at = t * o->y_stride + first;
		char *window =
		        (char *)cpu_ptr(o->window) + (text * kept * o->cols + first) * dtype_bytes(o->dtype);
		int64_t row = o->cols * dtype_bytes(o->dtype);
		float *y = cpu_out(sum, cpu_ptr(o->y), at, o->dtype);

		for (int64_t j = 0; j < kept; j++) {
			if (doc_end[t] - doc_start[t] == 1)
				memset(window + j * row, 0, bytes);
			rows[j] = cpu_load(k, inputs[j].at, window + j * row, 0, n, o->dtype);
		}
		row_load(&inputs[kept], &forward, t, first, n);
		rows[kept] = inputs[kept].at;
		taps_sum(y, taps, bias, rows, o->taps, n);
		if (o->act == CONV_SILU)
			k->act(y, y, n, ACT_SILU);
		for (int64_t j = 0; j + 1 < kept; j++)
			memcpy(window + j * row, window + (j + 1) * row, bytes);
		memcpy(window + (kept - 1) * row,
		        (const char *)cpu_ptr(o->x) + (t * o->x_stride + first) * dtype_bytes(o->dtype),
		        bytes);
		cpu_store(k, cpu_ptr(o->y), at, y, n, o->dtype);
	}
}

int cpu_conv_cached(struct cpu_context *cx, const struct op_conv_cached *o)
{
	struct op_conv_cached op = *o;
	int rc = cpu_texts_check(
	        "conv_cached", cpu_ptr(o->doc_start), cpu_ptr(o->doc_end), o->tokens, o->texts, o->text_rows);

	if (rc)
		return rc;
	cpu_run(cx, cpu_pieces(o->cols, CONV_COLS), conv_cached_piece, &op);
	return 0;
}
