/* Computes the loss over the rows of an open session. */
#include "train/evaluate.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/work.h"
#include "comm/world.h"
#include "placement/options.h"

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
	        .row = from->doc_row,
	};
	for (int i = 0; i < BATCH_OWN_MAX; i++)
		to->own[i] = from->own[i];
}

/* Reports the losses of a micro-batch, document by document: those of its targets, or what an objective over
 * vectors gives for it. */
static int batch_rows_report(const struct micro_batch *mb, const struct vectors_pass *vectors,
        const float *losses, evaluate_row_fn *fn, void *context)
{
	int rc = 0;

	for (int64_t d = 0; d < mb->doc_count && !rc; d++)
		rc = vectors ? fn(context, mb->doc_row[d], losses + d * vectors->given, vectors->given)
		             : fn(context, mb->doc_row[d], losses + mb->doc_target[d],
		                       mb->doc_target[d + 1] - mb->doc_target[d]);
	return rc;
}

/* Sums over all ranks; each has run its rows. */
static int evaluate_sum(struct evaluation *result)
{
	double counts[] = {(double)result->targets, (double)result->tokens, (double)result->rows};
	int rc = world_sum(counts, 3);

	if (!rc)
		rc = world_sum(result->sums, OBJECTIVE_SUMS_MAX);
	result->targets = (int64_t)counts[0];
	result->tokens = (int64_t)counts[1];
	result->rows = (int64_t)counts[2];
	return rc;
}

/* The built micro-batch of the rows. */
static int micro_evaluate(struct session *s, const struct session_rows *rows, struct evaluation *result,
        evaluate_row_fn *row_fn, void *context)
{
	const struct micro_batch *mb = rows->micro[0];
	const struct objective_use use = objective_of_config(s->config);
	struct host_batch batch;
	const float *losses;
	int rc;

	host_batch_of(&batch, mb);
	rc = engine_eval(s->engine, &losses, &batch);
	if (rc)
		return rc;
	use.type->sums_add(result->sums, use.settings, &batch, losses);
	result->targets += mb->target_count;
	result->tokens += mb->token_count;
	result->rows += mb->doc_count;
	return row_fn ? batch_rows_report(mb, use.type->vectors, losses, row_fn, context) : 0;
}

/* All ranks end after the same micro-batch. */
static int stop_check(const struct session *s)
{
	enum { NOT_LAST = 2 };
	double stops;
	int rc;

	if (!s->is_stopped)
		return 0;
	stops = s->is_stopped(NOT_LAST) != 0;
	rc = world_sum(&stops, 1);
	return rc || stops == 0 ? rc : err_set(ERR_STOPPED, "stopped by a signal during an evaluation");
}

static int64_t micro_total(const struct sampler *sampler)
{
	int64_t count = 0;

	for (int64_t step = 0; step < sampler->steps_per_epoch; step++)
		count += sampler_micro_count(sampler, step);
	return count;
}

int evaluate(struct session *s, struct session_rows *rows, struct evaluation *result, evaluate_row_fn *row_fn,
        void *context)
{
	const struct sampler *sampler = &rows->source.sampler;
	struct micro_batch *mb = rows->micro[0];
	double begin = clock_now_s();
	int rc = 0;

	*result = (struct evaluation){0};
	work_begin("evaluating", micro_total(sampler));
	for (int64_t step = 0; step < sampler->steps_per_epoch && !rc; step++)
		for (int64_t m = 0; m < sampler_micro_count(sampler, step) && !rc; m++) {
			rc = batch_build(mb, &rows->source, step, m);
			if (!rc)
				rc = micro_evaluate(s, rows, result, row_fn, context);
			work_add(1);
			if (!rc)
				rc = stop_check(s);
		}
	work_end();
	result->seconds = clock_now_s() - begin;
	return rc ? rc : evaluate_sum(result);
}
