/* Computes the loss over the rows of an open session. */
#include "train/evaluate.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/str.h"
#include "base/work.h"
#include "comm/world.h"
#include "host/pool.h"
#include "placement/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
	        .teacher = from->limits.vector_count ? from->teacher : NULL,
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
	double counts[] = {
	        (double)result->targets, (double)result->tokens, (double)result->rows, (double)result->units};
	int rc = world_sum(counts, 4);

	if (!rc)
		rc = world_sum(result->sums, OBJECTIVE_SUMS_MAX);
	for (int i = 0; i < result->set_count && !rc; i++) {
		double units = (double)result->sets[i].units;

		rc = world_sum(result->sets[i].sums, OBJECTIVE_SUMS_MAX);
		rc = rc ? rc : world_sum(&units, 1);
		result->sets[i].units = (int64_t)units;
	}
	result->targets = (int64_t)counts[0];
	result->tokens = (int64_t)counts[1];
	result->rows = (int64_t)counts[2];
	result->units = (int64_t)counts[3];
	return rc;
}

/* ---- scores over all rows ---- */

static int64_t scored_width(const struct session *s, const struct objective *o)
{
	return o->vectors && s->model ? o->vectors->width(s->model) : 0;
}

static struct scored scored_of(const struct session *s, const struct session_rows *rows, int set)
{
	int64_t width = scored_width(s, objective_of_config(s->config).type);

	return (struct scored){.each = dataset_set_unit_rows(rows->data, set),
	        .width = width,
	        .stride = width + VECTOR_FACTS,
	        .pool = s->pool,
	        .each_task = pool_run};
}

/* The settings of a set that stays apart. */
static const struct objective_use *use_of(const struct session *s, const struct session_rows *rows, int set)
{
	return &s->losses.sets[rows->loss_of[set]].use;
}

/* Names the sets that are evaluated by themselves. */
static void sets_begin(struct evaluation *out, const struct session *s, const struct session_rows *rows)
{
	*out = (struct evaluation){.set_count = rows->turns ? rows->data->set_count : 0};
	for (int i = 0; i < out->set_count; i++)
		out->sets[i].name = s->losses.sets[rows->loss_of[i]].name;
}

int evaluate_names(struct evaluation *out, const struct session *s, const struct session_rows *rows)
{
	const struct objective_use use = objective_of_config(s->config);
	const struct scored none = scored_of(s, rows, 0);
	int rc = 0;

	sets_begin(out, s, rows);
	if (use.type->scores_of_sums)
		use.type->scores_of_sums(&out->scores, (double[OBJECTIVE_SUMS_MAX]){0}, s->labels.tag);
	if (!use.type->scores_find)
		return 0;
	for (int i = 0; i < out->set_count && !rc; i++) {
		const struct scored set = scored_of(s, rows, i);

		rc = use.type->scores_find(&out->sets[i].scores, &set, use_of(s, rows, i)->settings);
	}
	return out->set_count ? rc : use.type->scores_find(&out->scores, &none, use.settings);
}

static void scores_say(struct str *out, const struct scores *scores)
{
	for (int i = 0; i < scores->count; i++)
		if (isnan(scores->of[i].value))
			str_printf(out, ", %s undefined", scores->of[i].name);
		else
			str_printf(out, ", %s %.4f", scores->of[i].name, scores->of[i].value);
}

void evaluate_say(struct str *out, const struct objective *o, const struct objective_means *means)
{
	if (o->say_evaluation)
		o->say_evaluation(out, means);
	scores_say(out, &means->scores);
}

void evaluate_say_sets(struct str *out, const struct evaluation *e, const char *before)
{
	for (int i = 0; i < e->set_count; i++) {
		const struct evaluated_set *set = &e->sets[i];

		str_printf(out, "%s%s: loss %.4f", before, set->name, set->sums[0] / (double)set->units);
		scores_say(out, &set->scores);
	}
}

static int64_t vectors_bytes(const struct session *s, const struct session_rows *rows)
{
	return objective_of_config(s->config).type->scores_find
	               ? rows->data->row_count * scored_of(s, rows, 0).stride * (int64_t)sizeof(float)
	               : 0;
}

int64_t evaluate_bytes(const struct session *s)
{
	return s->eval.data && s->config->verb != VERB_EMBED ? vectors_bytes(s, &s->eval) : 0;
}

/* The vectors of all rows of the data, in its order; of rows that another rank has, zeros. */
static int vectors_open(float **vectors, const struct session *s, const struct session_rows *rows)
{
	int64_t bytes = vectors_bytes(s, rows);

	*vectors = bytes ? mem_alloc((size_t)bytes, 1) : NULL;
	return *vectors || !bytes ? 0 : ERR_NOMEM;
}

static void vectors_keep(float *vectors, struct session *s, const struct micro_batch *mb)
{
	int64_t stride;
	const float *row = engine_vectors(s->engine, &stride);

	for (int64_t d = 0; d < mb->doc_count; d++) {
		float *own = vectors + mb->doc_row[d] * stride;

		memcpy(own, row + d * stride, (size_t)stride * sizeof(*row));
		own[stride - VECTOR_FACTS + VECTOR_TOKENS] = 1; /* a rank has it */
	}
}

/* Sums over all ranks, in pieces. */
static int vectors_share(float *vectors, int64_t count)
{
	enum { PIECE = 16384 };
	double piece[PIECE];
	int rc = 0;

	for (int64_t at = 0; at < count && !rc && world_self()->size > 1; at += PIECE) {
		int64_t have = min_i64(count - at, PIECE);

		for (int64_t i = 0; i < have; i++)
			piece[i] = (double)vectors[at + i];
		rc = world_sum(piece, (int)have);
		for (int64_t i = 0; i < have; i++)
			vectors[at + i] = (float)piece[i];
	}
	return rc;
}

struct text_key {
	uint64_t hash;
	int64_t row;
};

static int by_hash(const void *one, const void *other)
{
	const struct text_key *a = one, *b = other;

	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	return a->row < b->row ? -1 : a->row > b->row;
}

/* The first of the rows with the same ids, of each. */
static int texts_find(int64_t *text, const uint64_t *hash, int64_t count)
{
	struct text_key *key = mem_alloc((size_t)count, sizeof(*key));

	if (!key)
		return ERR_NOMEM;
	for (int64_t row = 0; row < count; row++)
		key[row] = (struct text_key){hash[row], row};
	qsort(key, (size_t)count, sizeof(*key), by_hash);
	for (int64_t i = 0; i < count; i++)
		text[key[i].row] = i && key[i].hash == key[i - 1].hash ? text[key[i - 1].row] : key[i].row;
	mem_free(key);
	return 0;
}

/* Leaves out rows that were not evaluated. Of mixed sets several ranks may have a row: divides the sum. */
static int64_t vectors_pack(float *vectors, uint64_t *hash, const struct scored *of, int64_t rows)
{
	int64_t kept = 0;

	for (int64_t row = 0; row < rows; row++) {
		const float *from = vectors + row * of->stride;
		float ranks = from[of->width + VECTOR_TOKENS];

		if (ranks == 0)
			continue;
		for (int64_t i = 0; i < of->stride; i++)
			vectors[kept * of->stride + i] = from[i] / ranks;
		hash[kept++] = hash[row];
	}
	return kept;
}

/* Scores of `count` rows, with their hashes. */
static int rows_score(struct scores *out, const struct objective_use *use, struct scored *of, float *vectors,
        uint64_t *hash, int64_t count)
{
	int64_t *text = mem_alloc((size_t)count, sizeof(*text));
	int rc = text ? 0 : ERR_NOMEM;

	of->rows = vectors_pack(vectors, hash, of, count);
	of->row = vectors;
	of->text = text;
	if (!rc && of->each > 1)
		rc = texts_find(text, hash, of->rows);
	if (!rc)
		rc = use->type->scores_find(out, of, use->settings);
	mem_free(text);
	return rc;
}

static int scores_find(
        struct evaluation *result, float *vectors, struct session *s, const struct session_rows *rows)
{
	const struct objective_use use = objective_of_config(s->config);
	const struct dataset *d = rows->data;
	struct scored all = scored_of(s, rows, 0);
	uint64_t *hash;
	int rc;

	if (!vectors)
		return 0;
	rc = vectors_share(vectors, d->row_count * all.stride);
	if (rc)
		return rc;
	hash = mem_alloc((size_t)d->row_count, sizeof(*hash));
	rc = hash ? 0 : ERR_NOMEM;
	if (!rc && dataset_unit_count(d) < d->row_count)
		rc = session_texts_hash(hash, d);
	if (!rc && !result->set_count)
		rc = rows_score(&result->scores, &use, &all, vectors, hash, d->row_count);
	for (int i = 0; i < result->set_count && !rc; i++) {
		struct scored of = scored_of(s, rows, i);
		int64_t first = d->sets[i].first_row;

		rc = rows_score(&result->sets[i].scores, use_of(s, rows, i), &of, vectors + first * of.stride,
		        hash + first, d->sets[i].row_count);
	}
	mem_free(hash);
	return world_agree(rc);
}

/* The built micro-batch of a step of the rows. */
static int micro_evaluate(struct session *s, const struct session_rows *rows, int64_t step,
        struct evaluation *result, float *vectors, evaluate_row_fn *row_fn, void *context)
{
	const struct micro_batch *mb = rows->micro[0];
	const struct objective_use *own = session_rows_use(s, rows, step),
	                           use = objective_of_config(s->config);
	struct evaluated_set *set = &result->sets[sampler_step_set(&rows->source.sampler, step)];
	struct host_batch batch;
	const float *losses;
	int rc;

	host_batch_of(&batch, mb);
	batch.tag = s->labels.tag;
	batch.use = own;
	rc = engine_eval(s->engine, &losses, &batch);
	if (rc)
		return rc;
	if (vectors)
		vectors_keep(vectors, s, mb);
	use.type->sums_add(result->sums, own ? own->settings : use.settings, &batch, losses);
	if (own)
		use.type->sums_add(set->sums, own->settings, &batch, losses);
	set->units += own ? mb->row_count : 0;
	result->units += mb->row_count;
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
	float *vectors;
	int rc = world_agree(vectors_open(&vectors, s, rows));

	sets_begin(result, s, rows);
	work_begin("evaluating", micro_total(sampler));
	for (int64_t step = 0; step < sampler->steps_per_epoch && !rc; step++)
		for (int64_t m = 0; m < sampler_micro_count(sampler, step) && !rc; m++) {
			rc = batch_build(mb, &rows->source, step, m);
			if (!rc)
				rc = micro_evaluate(s, rows, step, result, vectors, row_fn, context);
			work_add(1);
			if (!rc)
				rc = stop_check(s);
		}
	work_end();
	result->seconds = clock_now_s() - begin;
	if (!rc)
		rc = evaluate_sum(result);
	if (!rc && objective_of_config(s->config).type->scores_of_sums)
		objective_of_config(s->config).type->scores_of_sums(
		        &result->scores, result->sums, s->labels.tag);
	if (!rc)
		rc = scores_find(result, vectors, s, rows);
	mem_free(vectors);
	return rc;
}
