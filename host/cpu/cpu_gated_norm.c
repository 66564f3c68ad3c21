/* RMSNorm with a gate beside it, forward and backward. */
#include "device/op_recurrent.h"
#include "host/cpu/cpu_inner.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

OP_RECURRENT_LIST(CPU_DECLARE)

enum { ARRAYS = 8 }; /* of a worker, of `cols` floats each */

struct gated_run {
	struct op_gated_norm_grad op; /* forward: without gradients */
	dev_addr y;
	double epsilon;
	int64_t blocks, block_rows;
	float *scratch;
};

/* The inputs of row r, group g, as fp32. `normed` is what the norm takes. */
struct gated_row {
	float *x, *gate, *normed, *silu;
	const float *weight;
};

static float *array_of(const struct gated_run *run, int worker, int array)
{
	return run->scratch + (worker * ARRAYS + array) * round_up(run->op.cols, 16);
}

static void into(float *to, dev_addr from, int64_t at, int64_t n, enum dtype dtype)
{
	const float *x = cpu_load(cpu_kernels(), to, cpu_ptr(from), at, n, dtype);

	if (x != to)
		memcpy(to, x, (size_t)n * sizeof(*to));
}

static void row_load(struct gated_row *row, const struct gated_run *run, int64_t r, int64_t g, int worker)
{
	const struct op_gated_norm_grad *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t n = o->cols;

	row->x = array_of(run, worker, 0);
	row->gate = array_of(run, worker, 1);
	row->silu = array_of(run, worker, 2);
	row->normed = row->x;
	into(row->x, o->x, r * o->x_stride + g * n, n, o->dtype);
	into(row->gate, o->gate, r * o->gate_stride + g * n, n, o->dtype);
	row->weight = cpu_load(k, array_of(run, worker, 3), cpu_ptr(o->weight),
	        o->weight_groups > 1 ? g * n : 0, n, o->dtype);
	k->act(row->silu, row->gate, n, ACT_SILU);
	if (o->order == GATE_BEFORE_NORM) {
		row->normed = array_of(run, worker, 4);
		for (int64_t c = 0; c < n; c++)
			row->normed[c] = row->x[c] * row->silu[c];
	}
}

static void out_store(dev_addr array, int64_t at, float *x, int64_t n, enum dtype dtype)
{
	if (dtype == DTYPE_F32)
		memcpy((float *)cpu_ptr(array) + at, x, (size_t)n * sizeof(*x));
	else
		cpu_store(cpu_kernels(), cpu_ptr(array), at, x, n, dtype);
}

static void gated_piece(void *context, int64_t piece, int worker)
{
	const struct gated_run *run = context;
	const struct op_gated_norm_grad *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t rows = cpu_piece_rows(o->cols), end = min_i64((piece + 1) * rows, o->rows * o->groups),
	        n = o->cols;
	float *rstd = cpu_ptr(o->rstd), *y = array_of(run, worker, 5);

	for (int64_t i = piece * rows; i < end; i++) {
		int64_t r = i / o->groups, g = i % o->groups;
		struct gated_row row;

		row_load(&row, run, r, g, worker);
		rstd[i] = (float)(1 / sqrt(k->sumsq_about(row.normed, n, 0) / (double)n + run->epsilon));
		k->norm(y, row.normed, row.weight, NULL, n, 0, rstd[i]);
		for (int64_t c = 0; c < n && o->order == GATE_AFTER_NORM; c++)
			y[c] *= row.silu[c];
		out_store(run->y, r * o->y_stride + g * n, y, n, o->dtype);
	}
}

int cpu_gated_norm(struct cpu_context *cx, const struct op_gated_norm *o)
{
	struct gated_run run = {.y = o->y,
	        .epsilon = o->epsilon,
	        .op = {.x = o->x,
	                .gate = o->gate,
	                .weight = o->weight,
	                .rstd = o->rstd,
	                .rows = o->rows,
	                .groups = o->groups,
	                .cols = o->cols,
	                .weight_groups = o->weight_groups,
	                .x_stride = o->x_stride,
	                .gate_stride = o->gate_stride,
	                .y_stride = o->y_stride,
	                .order = o->order,
	                .dtype = o->dtype}};

	run.scratch = cpu_scratch(cx, cpu_workers(cx) * ARRAYS * round_up(o->cols, 16) * 4);
	if (!run.scratch)
		return ERR_NOMEM;
	cpu_run(cx, cpu_pieces(o->rows * o->groups, cpu_piece_rows(o->cols)), gated_piece, &run);
	return 0;
}

/* dx, dgate of one row, and its part of the block's dweight. */
static void row_back(const struct gated_run *run, int64_t r, int64_t g, float *dweight, int worker)
{
	const struct op_gated_norm_grad *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t n = o->cols;
	const float rstd = ((const float *)cpu_ptr(o->rstd))[r * o->groups + g];
	float *dy = array_of(run, worker, 5), *dn = array_of(run, worker, 6),
	      *dgate = array_of(run, worker, 7);
	struct gated_row row;
	double sums[2];

	row_load(&row, run, r, g, worker);
	into(dy, o->dy, r * o->y_stride + g * n, n, o->dtype);
	if (o->order == GATE_AFTER_NORM) {
		for (int64_t c = 0; c < n; c++) {
			dgate[c] = dy[c] * row.x[c] * rstd * row.weight[c]; /* of silu */
			dy[c] *= row.silu[c];
		}
		k->act_grad(dgate, dgate, row.gate, n, ACT_SILU);
	}
	k->norm_sums(sums, dy, row.normed, row.weight, n, 0, rstd);
	k->norm_dw(dweight, NULL, dy, row.normed, n, 0, rstd);
	k->norm_dx(dn, dy, row.normed, row.weight, n, 0, rstd, 0, (float)(sums[1] / (double)n));
	if (o->order == GATE_BEFORE_NORM) {
		for (int64_t c = 0; c < n; c++) {
			dgate[c] = dn[c] * row.x[c];
			dn[c] *= row.silu[c];
		}
		k->act_grad(dgate, dgate, row.gate, n, ACT_SILU);
	}
	out_store(o->dx, r * o->x_stride + g * n, dn, n, o->dtype);
	out_store(o->dgate, r * o->gate_stride + g * n, dgate, n, o->dtype);
}

static void gated_grad_block(void *context, int64_t block, int worker)
{
	const struct gated_run *run = context;
	const struct op_gated_norm_grad *o = &run->op;
	int64_t width = o->groups * o->cols, end = min_i64((block + 1) * run->block_rows, o->rows);
	float *dweight = (float *)cpu_ptr(o->scratch) + block * width;

	memset(dweight, 0, (size_t)width * sizeof(*dweight));
	for (int64_t r = block * run->block_rows; r < end; r++)
		for (int64_t g = 0; g < o->groups; g++)
			row_back(run, r, g, dweight + g * o->cols, worker);
}

/* Blocks in order, and with one weight for all groups the groups in order. */
static void gated_grad_combine(void *context, int64_t piece, int worker)
{
	const struct gated_run *run = context;
	const struct op_gated_norm_grad *o = &run->op;
	int64_t width = o->groups * o->cols, count = o->weight_groups * o->cols, step = count,
	        c = piece * CPU_CHUNK;
	const float *partial = cpu_ptr(o->scratch);
	float *dweight = cpu_ptr(o->dweight);

	(void)worker;
	for (int64_t end = min_i64(c + CPU_CHUNK, count); c < end; c++) {
		double sum = 0;

		for (int64_t b = 0; b < run->blocks; b++)
			for (int64_t at = c; at < width; at += step)
				sum += partial[b * width + at];
		dweight[c] = (float)(dweight[c] + sum);
	}
}

int cpu_gated_norm_grad(struct cpu_context *cx, const struct op_gated_norm_grad *o)
{
	struct gated_run run = {.op = *o};

	run.blocks = gated_norm_scratch_count(o->rows, 1, 1);
	run.block_rows = cpu_pieces(o->rows, run.blocks);
	run.blocks = cpu_pieces(o->rows, run.block_rows);
	run.scratch = cpu_scratch(cx, cpu_workers(cx) * ARRAYS * round_up(o->cols, 16) * 4);
	if (!run.scratch)
		return ERR_NOMEM;
	cpu_run(cx, run.blocks, gated_grad_block, &run);
	cpu_run(cx, cpu_pieces(o->weight_groups * o->cols, CPU_CHUNK), gated_grad_combine, &run);
	return 0;
}
