/* Computes the loss over the rows of an open session. */
#include "train/evaluate.h"

#include "base/clock.h"
#include "comm/world.h"

void host_batch_of(struct host_batch *to, const struct micro_batch *from)
{
	*to = (struct host_batch){
	        .tokens = from->token_count,
	        .targets = from->target_count,
	        .documents = from->doc_count,
	        .id = from->ids,
	        .position = from->positions,
	        .doc_start = from->doc_start,
	        .doc_end = from->doc_end,
	        .target_row = from->target_rows,
	        .target_label = from->target_labels,
	};
}

/* Reports the losses of a micro-batch, document by document. */
static int batch_rows_report(
        const struct micro_batch *mb, const float *losses, evaluate_row_fn *fn, void *context)
{
	int64_t at = 0;
	int rc = 0;

	for (int64_t d = 0; d < mb->doc_count && !rc; d++) {
		int64_t first = at;

		while (at < mb->target_count && mb->target_rows[at] < mb->doc_offset[d + 1])
			at++;
		rc = fn(context, mb->doc_row[d], losses + first, at - first);
	}
	return rc;
}

/* Sums over all ranks; each has run its rows. */
static int evaluate_sum(struct evaluation *result)
{
	double sums[] = {
	        result->loss_sum, (double)result->targets, (double)result->tokens, (double)result->rows};
	int rc = world_sum(sums, 4);

	result->loss_sum = sums[0];
	result->targets = (int64_t)sums[1];
	result->tokens = (int64_t)sums[2];
	result->rows = (int64_t)sums[3];
	return rc;
}

int evaluate(struct session *s, struct evaluation *result, evaluate_row_fn *row_fn, void *context)
{
	const struct sampler *sampler = &s->eval.source.sampler;
	struct micro_batch *mb = s->eval.micro[0];
	double begin = clock_now_s();
	int rc = 0;

	*result = (struct evaluation){0};
	for (int64_t step = 0; step < sampler->steps_per_epoch && !rc; step++) {
		struct host_batch batch;
		const float *losses;

		rc = batch_build(mb, &s->eval.source, step, 0);
		if (rc)
			break;
		host_batch_of(&batch, mb);
		rc = engine_eval(s->engine, &losses, &batch);
		for (int64_t i = 0; i < mb->target_count && !rc; i++)
			result->loss_sum += losses[i];
		result->targets += mb->target_count;
		result->tokens += mb->token_count;
		result->rows += mb->doc_count;
		if (!rc && row_fn)
			rc = batch_rows_report(mb, losses, row_fn, context);
	}
	result->seconds = clock_now_s() - begin;
	return rc ? rc : evaluate_sum(result);
}
