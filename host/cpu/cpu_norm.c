/* RMSNorm and LayerNorm, forward and backward: RMSNorm is LayerNorm with mean 0. */
#include "host/cpu/cpu_norm.h"

#include "base/err.h"
#include "host/cpu/cpu_inner.h"

#include <math.h>
#include <string.h>

enum { NORM_BLOCK_ROWS = 64, NORM_BLOCKS_MAX = 64 };

/* The first element of statistics index i = row * groups + group. */
static int64_t norm_at(int64_t i, int64_t groups, int64_t stride, int64_t group_stride)
{
	return i / groups * stride + i % groups * group_stride;
}

/* Floats of an array of cols in a worker's scratch. All arrays are 64-byte aligned. */
static int64_t norm_array_count(int64_t cols)
{
	return round_up(cols, 16);
}

/* The factors of a row: the weight plus its offset, as fp32. */
static const float *factors_load(const struct cpu_kernels *k, float *buffer, dev_addr weight, int64_t cols,
        double offset, enum dtype dtype)
{
	const float *w = cpu_load(k, buffer, cpu_ptr(weight), 0, cols, dtype);

	if (offset == 0)
		return w;
	for (int64_t c = 0; c < cols; c++)
		buffer[c] = w[c] + (float)offset;
	return buffer;
}

struct norm_run {
	struct op_norm op;
	enum cpu_norm_kind kind;
	float *scratch; /* per worker: x, weight, bias */
};

static void norm_piece(void *context, int64_t piece, int worker)
{
	const struct norm_run *run = context;
	const struct op_norm *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t array = norm_array_count(o->cols), end = o->rows * o->groups, rows = cpu_piece_rows(o->cols);
	float *xs = run->scratch + 3 * array * worker, *rstd = cpu_ptr(o->rstd), *means = cpu_ptr(o->mean);
	const float *weight = factors_load(k, xs + array, o->weight, o->cols, o->weight_offset, o->dtype);
	const float *bias = dev_is_none(o->bias)
	                            ? NULL
	                            : cpu_load(k, xs + 2 * array, cpu_ptr(o->bias), 0, o->cols, o->dtype);

	end = min_i64((piece + 1) * rows, end);
	for (int64_t i = piece * rows; i < end; i++) {
		int64_t x_at = norm_at(i, o->groups, o->x_stride, o->x_group_stride);
		int64_t y_at = norm_at(i, o->groups, o->y_stride, o->y_group_stride);
		const float *x = cpu_load(k, xs, cpu_ptr(o->x), x_at, o->cols, o->dtype);
		float *y = cpu_out(xs, cpu_ptr(o->y), y_at, o->dtype);
		double mean = run->kind == CPU_NORM_RMS ? 0 : k->sum(x, o->cols) / (double)o->cols;
		double variance = k->sumsq_about(x, o->cols, mean) / (double)o->cols;

		rstd[i] = (float)(1 / sqrt(variance + o->epsilon));
		if (run->kind == CPU_NORM_LAYER)
			means[i] = (float)mean;
		k->norm(y, x, weight, bias, o->cols, (float)mean, rstd[i]);
		cpu_store(k, cpu_ptr(o->y), y_at, y, o->cols, o->dtype);
	}
}

int cpu_norm_forward(struct cpu_context *cx, const struct op_norm *op, enum cpu_norm_kind kind)
{
	struct norm_run run = {.op = *op, .kind = kind};

	if (kind == CPU_NORM_RMS)
		run.op.bias = DEV_NONE;
	run.scratch = cpu_scratch(cx, cpu_workers(cx) * 3 * norm_array_count(op->cols) * 4);
	if (!run.scratch)
		return ERR_NOMEM;
	cpu_run(cx, cpu_pieces(op->rows * op->groups, cpu_piece_rows(op->cols)), norm_piece, &run);
	return 0;
}

struct norm_grad_run {
	struct op_norm_grad op;
	enum cpu_norm_kind kind;
	int64_t block_count, block_rows;
	float *scratch; /* per worker: dy, x, weight, dx */
};

/* One block of rows: dx, and the block's own sums of dweight and dbias in the op's scratch. */
static void norm_grad_block(void *context, int64_t block, int worker)
{
	const struct norm_grad_run *run = context;
	const struct op_norm_grad *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t array = norm_array_count(o->cols), end = o->rows * o->groups;
	float *buffer = run->scratch + 4 * array * worker;
	float *dweight = (float *)cpu_ptr(o->scratch) + 2 * o->cols * block, *dbias = dweight + o->cols;
	const float *weight =
	        factors_load(k, buffer + 2 * array, o->weight, o->cols, o->weight_offset, o->dtype);
	const float *rstds = cpu_ptr(o->rstd), *means = cpu_ptr(o->mean);

	memset(dweight, 0, (size_t)o->cols * 2 * sizeof(float));
	end = min_i64((block + 1) * run->block_rows, end);
	for (int64_t i = block * run->block_rows; i < end; i++) {
		int64_t x_at = norm_at(i, o->groups, o->x_stride, o->x_group_stride);
		int64_t y_at = norm_at(i, o->groups, o->y_stride, o->y_group_stride);
		const float *dy = cpu_load(k, buffer, cpu_ptr(o->dy), y_at, o->cols, o->dtype);
		const float *x = cpu_load(k, buffer + array, cpu_ptr(o->x), x_at, o->cols, o->dtype);
		float mean = run->kind == CPU_NORM_RMS ? 0 : means[i], rstd = rstds[i];
		float *dx = o->accumulate_dx ? buffer + 3 * array
		                             : cpu_out(buffer, cpu_ptr(o->dx), x_at, o->dtype);
		double sums[2];

		k->norm_sums(sums, dy, x, weight, o->cols, mean, rstd);
		k->norm_dw(dweight, run->kind == CPU_NORM_RMS ? NULL : dbias, dy, x, o->cols, mean, rstd);
		k->norm_dx(dx, dy, x, weight, o->cols, mean, rstd,
		        run->kind == CPU_NORM_RMS ? 0 : (float)(sums[0] / (double)o->cols),
		        (float)(sums[1] / (double)o->cols));
		if (o->accumulate_dx) {
			float *sum = cpu_out(buffer, cpu_ptr(o->dx), x_at, o->dtype);

			k->add(sum, dx, cpu_load(k, buffer, cpu_ptr(o->dx), x_at, o->cols, o->dtype),
			        o->cols);
			dx = sum;
		}
		cpu_store(k, cpu_ptr(o->dx), x_at, dx, o->cols, o->dtype);
	}
}

/* Adds the blocks' sums of a band of columns, in block order and in double. */
static void norm_grad_combine(void *context, int64_t band, int worker)
{
	const struct norm_grad_run *run = context;
	const struct op_norm_grad *o = &run->op;
	const float *partial = cpu_ptr(o->scratch);
	float *dweight = cpu_ptr(o->dweight), *dbias = cpu_ptr(o->dbias);
	int64_t end = min_i64((band + 1) * CPU_CHUNK, o->cols);

	(void)worker;
	for (int64_t c = band * CPU_CHUNK; c < end; c++) {
		double weight_sum = 0, bias_sum = 0;

		for (int64_t b = 0; b < run->block_count; b++) {
			weight_sum += partial[2 * o->cols * b + c];
			bias_sum += partial[2 * o->cols * b + o->cols + c];
		}
		dweight[c] = (float)(dweight[c] + weight_sum);
		if (dbias)
			dbias[c] = (float)(dbias[c] + bias_sum);
	}
}

int cpu_norm_backward(struct cpu_context *cx, const struct op_norm_grad *op, enum cpu_norm_kind kind)
{
	struct norm_grad_run run = {.op = *op, .kind = kind};
	int64_t rows = op->rows * op->groups;

	if (kind == CPU_NORM_RMS)
		run.op.dbias = DEV_NONE;
	run.block_rows = cpu_pieces(rows, min_i64(NORM_BLOCKS_MAX, cpu_pieces(rows, NORM_BLOCK_ROWS)));
	run.block_count = cpu_pieces(rows, run.block_rows);
	run.scratch = cpu_scratch(cx, cpu_workers(cx) * 4 * norm_array_count(op->cols) * 4);
	if (!run.scratch)
		return ERR_NOMEM;
	cpu_run(cx, run.block_count, norm_grad_block, &run);
	cpu_run(cx, cpu_pieces(op->cols, CPU_CHUNK), norm_grad_combine, &run);
	return 0;
}
