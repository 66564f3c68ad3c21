#include "host/cpu/cpu_inner.h"

#include <math.h>

struct cross_entropy_run {
	struct op_cross_entropy op;
	int64_t first, end, piece_rows; /* rows of this wave, and of a piece of it */
};

/* dlogits of one row. In bf16 the row is written front to back through a buffer, and never ahead of what was
 * read of its own logits, because the two may share bytes. */
static void cross_entropy_grad_row(
        const struct cpu_kernels *k, const struct op_cross_entropy *o, int64_t row, float max, double sum)
{
	const float *logits = (const float *)cpu_ptr(o->logits) + row * o->vocab;
	int32_t label = ((const int32_t *)cpu_ptr(o->label))[row];
	/* p - 1 in double: p may be all but 1 */
	double at_label = (exp((double)logits[label] - max) / sum - 1) * o->grad_scale;
	float buffer[CPU_CHUNK];

	for (int64_t at = 0; at < o->vocab; at += CPU_CHUNK) {
		int64_t n = cpu_min(CPU_CHUNK, o->vocab - at), to = row * o->vocab + at;
		float *out = cpu_out(buffer, cpu_ptr(o->dlogits), to, o->dlogits_dtype);

		k->exp_scaled(out, logits + at, max, (float)(o->grad_scale / sum), n);
		if (label >= at && label < at + n)
			out[label - at] = (float)at_label;
		cpu_store(k, cpu_ptr(o->dlogits), to, out, n, o->dlogits_dtype);
	}
}

static void cross_entropy_piece(void *context, int64_t piece, int worker)
{
	const struct cross_entropy_run *run = context;
	const struct op_cross_entropy *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t begin = run->first + piece * run->piece_rows,
	        end = cpu_min(begin + run->piece_rows, run->end);

	(void)worker;
	for (int64_t row = begin; row < end; row++) {
		const float *logits = (const float *)cpu_ptr(o->logits) + row * o->vocab;
		int32_t label = ((const int32_t *)cpu_ptr(o->label))[row];
		float max = k->max(logits, o->vocab);
		double sum = k->exp_sum(logits, max, o->vocab);

		((float *)cpu_ptr(o->loss))[row] = (float)((double)max - logits[label] + log(sum));
		if (!dev_is_none(o->dlogits))
			cross_entropy_grad_row(k, o, row, max, sum);
	}
}

/* Row r of packed bf16 gradients lies on the bytes of row r / 2 of the logits. So rows go in waves
 * [0, 1), [1, 2), [2, 4), [4, 8) ...: a wave overwrites what the wave before it has read, and its own rows
 * are free of each other. */
int cpu_cross_entropy(struct cpu_context *cx, const struct op *op)
{
	struct cross_entropy_run run = {.op = op->cross_entropy};
	const struct op_cross_entropy *o = &run.op;
	int packed = o->dlogits_dtype == DTYPE_BF16 && o->dlogits.value == o->logits.value;
	int rc = cpu_check_index("cross_entropy", cpu_ptr(o->label), o->rows, o->vocab);

	if (rc < 0)
		return rc;
	run.piece_rows = cpu_pieces(8192, o->vocab);
	for (run.first = 0; run.first < o->rows; run.first = run.end) {
		run.end = packed ? cpu_min(run.first ? 2 * run.first : 1, o->rows) : o->rows;
		cpu_run(cx, cpu_pieces(run.end - run.first, run.piece_rows), cross_entropy_piece, &run);
	}
	return 0;
}
