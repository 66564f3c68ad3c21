/* The loss of each row of logits, and its gradient. */
#include "device/op_loss.h"

#include "base/err.h"
#include "host/cpu/cpu_inner.h"

#include <math.h>
#include <stddef.h>

OP_LOSS_LIST(CPU_DECLARE)

struct cross_entropy_run {
	struct op_cross_entropy op;
	int64_t first, end, piece_rows; /* rows of this wave, and of a piece of it */
	float *capped;                  /* per worker: a row of capped logits; NULL: no cap */
};

/* A place for the exponentials of a row until they are scaled: its fp32 gradients, or logits that the
 * gradients will overwrite. NULL: they are computed again. */
static float *kept_exponentials(const struct op_cross_entropy *o, int64_t row)
{
	if (o->dlogits_dtype == DTYPE_F32 && !dev_is_none(o->dlogits))
		return (float *)cpu_ptr(o->dlogits) + row * o->vocab;
	return o->dlogits.value == o->logits.value ? (float *)cpu_ptr(o->logits) + row * o->vocab : NULL;
}

/* How the gradients of a row follow from its exponentials. */
struct row_gradient {
	float max, factor, share; /* exp(logit - max) * factor - share */
	float at_label;           /* the value at the label */
};

/* dlogits from the exponentials in `kept` or from the logits. A bf16 row is written front to back through a
 * buffer. It never gets ahead of the logits read so far, because the two may share bytes. */
static void cross_entropy_grad_row(const struct op_cross_entropy *o, const float *logits, const float *kept,
        int64_t row, const struct row_gradient *g)
{
	const struct cpu_kernels *k = cpu_kernels();
	int32_t label = ((const int32_t *)cpu_ptr(o->label))[row];
	float buffer[CPU_CHUNK];

	for (int64_t at = 0; at < o->vocab; at += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, o->vocab - at), to = row * o->vocab + at;
		float *out = cpu_out(buffer, cpu_ptr(o->dlogits), to, o->dlogits_dtype);

		if (kept)
			k->scale(out, kept + at, g->factor, n);
		else
			k->exp_scaled(out, logits + at, g->max, g->factor, n);
		if (o->smoothing > 0)
			for (int64_t i = 0; i < n; i++)
				out[i] -= g->share;
		if (label >= at && label < at + n)
			out[label - at] = g->at_label;
		if (o->cap > 0)
			k->soft_cap_grad(out, logits + at, (float)o->cap, n);
		cpu_store(k, cpu_ptr(o->dlogits), to, out, n, o->dlogits_dtype);
	}
}

static void cross_entropy_piece(void *context, int64_t piece, int worker)
{
	const struct cross_entropy_run *run = context;
	const struct op_cross_entropy *o = &run->op;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t begin = run->first + piece * run->piece_rows,
	        end = min_i64(begin + run->piece_rows, run->end);

	for (int64_t row = begin; row < end; row++) {
		double scale = dev_is_none(o->weight)
		                       ? o->grad_scale
		                       : (double)o->grad_scale * ((const float *)cpu_ptr(o->weight))[row];
		const float *logits = (const float *)cpu_ptr(o->logits) + row * o->vocab;
		float *kept = run->capped ? NULL : kept_exponentials(o, row), max;
		double label_logit, wanted, sum, even = o->smoothing / (double)o->vocab;

		if (run->capped) {
			float *capped = run->capped + worker * o->vocab;

			k->soft_cap(capped, logits, (float)o->cap, o->vocab);
			logits = capped;
		}
		max = k->max(logits, o->vocab);
		label_logit = logits[((const int32_t *)cpu_ptr(o->label))[row]];
		wanted = label_logit; /* before exponentials overwrite the logits */
		if (o->smoothing > 0)
			wanted = (1 - o->smoothing) * label_logit + even * k->sum(logits, o->vocab);
		sum = kept ? k->softmax_part(kept, logits, max, o->vocab) : k->exp_sum(logits, max, o->vocab);

		((float *)cpu_ptr(o->loss))[row] = (float)(max - wanted + log(sum));
		if (!dev_is_none(o->dlogits)) /* p - 1 in double, because p may be close to 1 */
			cross_entropy_grad_row(o, logits, kept, row,
			        &(struct row_gradient){max, (float)(scale / sum), (float)(even * scale),
			                (float)((exp(label_logit - max) / sum - (1 - o->smoothing) - even) *
			                        scale)});
	}
}

/* Row r of packed bf16 gradients lies on the bytes of row r / 2 of the logits. So rows go in waves
 * [0, 1), [1, 2), [2, 4), [4, 8) ...: a wave overwrites only logits that are already read, and its rows do
 * not overlap. */
int cpu_cross_entropy(struct cpu_context *cx, const struct op_cross_entropy *op)
{
	struct cross_entropy_run run = {.op = *op};
	const struct op_cross_entropy *o = &run.op;
	int packed = o->dlogits_dtype == DTYPE_BF16 && o->dlogits.value == o->logits.value;
	int rc = cpu_check_index("cross_entropy", cpu_ptr(o->label), o->rows, o->vocab);

	if (rc < 0)
		return rc;
	if (o->cap > 0) {
		run.capped = cpu_scratch(cx, cpu_workers(cx) * o->vocab * (int64_t)sizeof(*run.capped));
		if (!run.capped)
			return ERR_NOMEM;
	}
	run.piece_rows = cpu_piece_rows(o->vocab);
	for (run.first = 0; run.first < o->rows; run.first = run.end) {
		run.end = packed ? min_i64(run.first ? 2 * run.first : 1, o->rows) : o->rows;
		cpu_run(cx, cpu_pieces(run.end - run.first, run.piece_rows), cross_entropy_piece, &run);
	}
	return 0;
}
