/* Rows of experts: taken from tokens, weighed, and summed for their tokens; the scale of experts. */
#include "base/num.h"
#include "device/op_experts.h"
#include "host/cpu/cpu_inner.h"

#include <string.h>

OP_EXPERTS_LIST(CPU_DECLARE)

/* ---- dispatch and combine ---- */

static void dispatch_piece(void *context, int64_t piece, int worker)
{
	const struct op_dispatch *o = context;
	const int32_t *slot = cpu_ptr(o->slot);
	struct cpu_rows rows =
	        cpu_rows_piece(&o->range, o->tokens * o->chosen, piece, cpu_piece_rows(o->cols));
	int64_t bytes = o->cols * dtype_bytes(o->dtype);

	(void)worker;
	for (int64_t r = rows.begin; r < rows.end; r++)
		memcpy((char *)cpu_ptr(o->y) + r * bytes,
		        (const char *)cpu_ptr(o->x) + slot[r] / o->chosen * bytes, (size_t)bytes);
}

int cpu_dispatch(struct cpu_context *cx, const struct op_dispatch *op)
{
	struct op_dispatch o = *op;

	cpu_run_rows(cx, &o.range, o.tokens * o.chosen, cpu_piece_rows(o.cols), dispatch_piece, &o);
	return 0;
}

/* The rows of a token that are in the range, in the order of the sum. Returns their number. */
static int64_t combine_rows(const struct op_combine *o, int64_t t, int32_t *sorted)
{
	const int32_t *row = (const int32_t *)cpu_ptr(o->row) + t * o->chosen;
	struct cpu_rows rows = cpu_rows_of(&o->range, o->tokens * o->chosen);
	int64_t count = 0, at;

	for (int64_t j = 0; j < o->chosen; j++) {
		if (row[j] < rows.begin || row[j] >= rows.end)
			continue;
		for (at = count++; at > 0 && (sorted[at - 1] > row[j]) != o->is_reversed; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = row[j];
	}
	return count;
}

/* Columns [c, c + n) of a token, from its rows. */
static void combine_columns(
        const struct op_combine *o, int64_t t, const int32_t *row, int64_t rows, int64_t c, int64_t n)
{
	const struct cpu_kernels *k = cpu_kernels();
	float buffer[CPU_CHUNK], sum[CPU_CHUNK] = {0};

	if (o->goes_on)
		memcpy(sum, (const float *)cpu_ptr(o->y) + t * o->cols + c, (size_t)n * sizeof(*sum));
	for (int64_t j = 0; j < rows; j++)
		k->add(sum, sum, cpu_load(k, buffer, cpu_ptr(o->x), row[j] * o->cols + c, n, o->dtype), n);
	if (o->accumulate)
		k->add(sum, cpu_load(k, buffer, cpu_ptr(o->y), t * o->cols + c, n, o->y_dtype), sum, n);
	if (o->y_dtype == DTYPE_F32)
		memcpy((float *)cpu_ptr(o->y) + t * o->cols + c, sum, (size_t)n * sizeof(*sum));
	else
		cpu_store(k, cpu_ptr(o->y), t * o->cols + c, sum, n, o->y_dtype);
}

static void combine_piece(void *context, int64_t piece, int worker)
{
	const struct op_combine *o = context;
	int64_t each = cpu_piece_rows(o->cols), end = min_i64((piece + 1) * each, o->tokens);

	(void)worker;
	for (int64_t t = piece * each; t < end; t++) {
		int32_t row[ROUTE_CHOSEN_MAX];
		int64_t rows = combine_rows(o, t, row);

		for (int64_t c = 0; c < o->cols && (rows || !o->goes_on); c += CPU_CHUNK)
			combine_columns(o, t, row, rows, c, min_i64(CPU_CHUNK, o->cols - c));
	}
}

int cpu_combine(struct cpu_context *cx, const struct op_combine *op)
{
	struct op_combine o = *op;

	cpu_run(cx, cpu_pieces(o.tokens, cpu_piece_rows(o.cols)), combine_piece, &o);
	return 0;
}

/* ---- weights ---- */

/* x[at ..) *= weight */
static void row_scale(dev_addr x, int64_t at, int64_t n, float weight, enum dtype dtype)
{
	const struct cpu_kernels *k = cpu_kernels();
	float buffer[CPU_CHUNK], *out = cpu_out(buffer, cpu_ptr(x), at, dtype);
	const float *in = cpu_load(k, buffer, cpu_ptr(x), at, n, dtype);

	for (int64_t i = 0; i < n; i++)
		out[i] = in[i] * weight;
	cpu_store(k, cpu_ptr(x), at, out, n, dtype);
}

/* The sum over a row of x * dx, before both are multiplied by its weight. Without dx only x is. */
static double row_weigh(const struct op_weigh_grad *o, int64_t r, float weight)
{
	const struct cpu_kernels *k = cpu_kernels();
	float a[CPU_CHUNK], b[CPU_CHUNK];
	double sum = 0;

	for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, o->cols - c), at = r * o->cols + c;

		if (!dev_is_none(o->dx)) {
			const float *x = cpu_load(k, a, cpu_ptr(o->x), at, n, o->dtype),
			            *dx = cpu_load(k, b, cpu_ptr(o->dx), at, n, o->dtype);

			for (int64_t i = 0; i < n; i++)
				sum += (double)x[i] * dx[i];
			row_scale(o->dx, at, n, weight, o->dtype);
		}
		row_scale(o->x, at, n, weight, o->dtype);
	}
	return sum;
}

static void weigh_piece(void *context, int64_t piece, int worker)
{
	const struct op_weigh_grad *o = context;
	const int32_t *slot = dev_is_none(o->slot) ? NULL : cpu_ptr(o->slot);
	const float *weights = cpu_ptr(o->weights);
	float *dweights = dev_is_none(o->dx) ? NULL : cpu_ptr(o->dweights);
	struct cpu_rows rows = cpu_rows_piece(&o->range, o->rows, piece, cpu_piece_rows(o->cols));

	(void)worker;
	for (int64_t r = rows.begin; r < rows.end; r++) {
		int64_t s = slot ? slot[r] : r;
		double sum = row_weigh(o, r, weights[s]);

		if (dweights)
			dweights[s] = (float)sum;
	}
}

int cpu_weigh(struct cpu_context *cx, const struct op_weigh *op)
{
	struct op_weigh_grad o = {.x = op->x,
	        .weights = op->weights,
	        .slot = op->slot,
	        .rows = op->rows,
	        .cols = op->cols,
	        .dtype = op->dtype,
	        .range = op->range};

	cpu_run_rows(cx, &o.range, o.rows, cpu_piece_rows(o.cols), weigh_piece, &o);
	return 0;
}

int cpu_weigh_grad(struct cpu_context *cx, const struct op_weigh_grad *op)
{
	struct op_weigh_grad o = *op;

	cpu_run_rows(cx, &o.range, o.rows, cpu_piece_rows(o.cols), weigh_piece, &o);
	return 0;
}

/* ---- the scale of experts ---- */

static float scale_at(dev_addr scale, int64_t e, enum dtype dtype)
{
	return dtype == DTYPE_F32 ? ((const float *)cpu_ptr(scale))[e]
	                          : bf16_to_f32(((const uint16_t *)cpu_ptr(scale))[e]);
}

static void scale_piece(void *context, int64_t piece, int worker)
{
	const struct op_expert_scale *o = context;
	const int32_t *ids = cpu_ptr(o->ids);
	float *weights = cpu_ptr(o->weights);
	int64_t end = min_i64((piece + 1) * CPU_PIECE, o->tokens * o->chosen);

	(void)worker;
	for (int64_t s = piece * CPU_PIECE; s < end; s++)
		weights[s] *= scale_at(o->scale, ids[s], o->dtype);
}

int cpu_expert_scale(struct cpu_context *cx, const struct op_expert_scale *op)
{
	struct op_expert_scale o = *op;
	int err = cpu_check_index("expert_scale", cpu_ptr(o.ids), o.tokens * o.chosen, o.experts);

	if (!err)
		cpu_run(cx, cpu_pieces(o.tokens * o.chosen, CPU_PIECE), scale_piece, &o);
	return err;
}

/* A piece is an expert. */
static void scale_grad_piece(void *context, int64_t e, int worker)
{
	const struct op_expert_scale_grad *o = context;
	const int32_t *first = cpu_ptr(o->first), *slot = cpu_ptr(o->slot);
	const float *weights = cpu_ptr(o->weights);
	float *dweights = cpu_ptr(o->dweights), *dscale = (float *)cpu_ptr(o->dscale) + e;
	float scale = scale_at(o->scale, e, o->dtype);
	double sum = 0;

	(void)worker;
	for (int64_t r = first[e]; r < first[e + 1]; r++) {
		sum += (double)dweights[slot[r]] * weights[slot[r]];
		dweights[slot[r]] *= scale;
	}
	*dscale = (float)(*dscale + sum);
}

int cpu_expert_scale_grad(struct cpu_context *cx, const struct op_expert_scale_grad *op)
{
	struct op_expert_scale_grad o = *op;

	cpu_run(cx, o.experts, scale_grad_piece, &o);
	return 0;
}
