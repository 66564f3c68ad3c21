/* Classification of tokens: a label for each word of a text, at its first token. */
#include "data/batch.h"
#include "model/blocks/head.h"
#include "objective/objective.h"

#include "base/err.h"

#include <inttypes.h>
#include <math.h>

enum { LABEL, TYPE }; /* arrays */

static const char *const keys[] = {"objective", NULL};

static int tags_check(const struct model *model)
{
	return model->config.has[ROLE_CLASS_W] && !model->config.pooling.mode_count
	               ? 0
	               : err_set(ERR_UNSUPPORTED, "the model has no head for classes of tokens");
}

static void tags_add(struct micro_batch *mb, const struct batch_document *document)
{
	const struct row_view *row = &document->row;
	int32_t *label = mb->own[LABEL], *type = mb->own[TYPE];

	for (int64_t t = 0; t < row->token_count; t++) {
		int32_t own = row_label(row, t);

		type[document->first_token + t] = 0;
		if (own == DATASET_IGNORE)
			continue;
		label[mb->target_count] = own;
		mb->target_rows[mb->target_count++] = document->first_token + (int32_t)t;
	}
}

/* ---- what was found: as seqeval counts it ---- */

enum { SUM_LOSS, SUM_WORDS, SUM_RIGHT, SUM_WANTED, SUM_FOUND, SUM_BOTH, SUM_COUNT };

/* A word's tag in the labels, or in what was found; the chunk that it is in. */
struct chunk {
	struct label_tag tag;
	int64_t begin;
	int ends; /* 1: with the word before this one */
};
static const struct label_tag outside = {'O', -1};

static int ends_between(struct label_tag before, struct label_tag now)
{
	if (before.kind == 'O')
		return 0;
	return before.kind == 'E' || before.kind == 'S' || now.kind == 'B' || now.kind == 'S' ||
	       now.kind == 'O' || before.type != now.type;
}

static int begins_between(struct label_tag before, struct label_tag now)
{
	if (now.kind == 'O')
		return 0;
	return now.kind == 'B' || now.kind == 'S' || before.kind == 'E' || before.kind == 'S' ||
	       before.kind == 'O' || before.type != now.type;
}

static void chunk_go_on(struct chunk *c, struct label_tag now)
{
	c->ends = ends_between(c->tag, now);
	c->tag = now;
}

/* Words of one text, and one behind them. */
static void text_count(
        double *sums, const struct label_tag *tag, const int32_t *label, const int32_t *found, int64_t count)
{
	struct chunk want = {outside, 0, 0}, have = {outside, 0, 0};

	for (int64_t i = 0; i <= count; i++) {
		struct label_tag before[2] = {want.tag, have.tag};

		chunk_go_on(&want, i < count ? tag[label[i]] : outside);
		chunk_go_on(&have, i < count ? tag[found[i]] : outside);
		sums[SUM_WANTED] += want.ends;
		sums[SUM_FOUND] += have.ends;
		sums[SUM_BOTH] += want.ends && have.ends && want.begin == have.begin &&
		                  before[0].type == before[1].type;
		if (begins_between(before[0], want.tag))
			want.begin = i;
		if (begins_between(before[1], have.tag))
			have.begin = i;
	}
}

static void sums_add(
        double *sums, const double *settings, const struct host_batch *batch, const float *losses)
{
	const int32_t *label = batch->own[LABEL],
	              *found = (const int32_t *)(const void *)(losses + batch->targets);
	int64_t from = 0;

	objective_add_losses(sums, settings, batch, losses);
	for (int64_t i = 0; batch->tag && i < batch->targets; i++) {
		int ends = i + 1 == batch->targets || batch->doc_start[batch->target_row[i]] !=
		                                              batch->doc_start[batch->target_row[i + 1]];

		sums[SUM_WORDS]++;
		sums[SUM_RIGHT] += label[i] == found[i] && !isnan(losses[i]);
		if (!ends)
			continue;
		if (batch->tag->kind)
			text_count(sums, batch->tag, label + from, found + from, i + 1 - from);
		from = i + 1;
	}
}

static void score_add(struct scores *out, const char *name, double part, double whole, int is_known)
{
	out->of[out->count].name = name;
	out->of[out->count++].value = !is_known ? NAN : whole > 0 ? part / whole : 0;
}

static void scores_of_sums(struct scores *out, const double *sums, const struct label_tag *tag)
{
	double both = sums[SUM_BOTH], chunks = sums[SUM_FOUND] + sums[SUM_WANTED];
	int is_known = sums[SUM_WORDS] > 0 && isfinite(sums[SUM_LOSS]);

	score_add(out, "accuracy", sums[SUM_RIGHT], sums[SUM_WORDS], is_known);
	if (!tag || !tag->kind)
		return;
	score_add(out, "precision", both, sums[SUM_FOUND], is_known);
	score_add(out, "recall", both, sums[SUM_WANTED], is_known);
	score_add(out, "f1", 2 * both, chunks, is_known);
}

static void labels_run(struct stage_call *call, enum head_mode mode)
{
	head_losses(call, mode,
	        &(struct token_losses){.label = call->batch->own[LABEL], .weight = DEV_NONE, .finds = 1});
}

static const struct head_pass head = {labels_run, head_scratch_bytes, 1};

static void say_evaluation(struct str *out, const struct objective_means *means)
{
	str_printf(out, " over %" PRId64 " words", means->targets);
}

const struct objective objective_token_classification = {
        .name = "token_classification",
        .keys = keys,
        .chosen_by = OBJECTIVE_TOKEN_CLASSIFICATION,
        .rows = DATASET_LABELS_ONLY,
        .labels = {.is_of_tokens = 1},
        .batch = {.array = {[LABEL] = {"label", DTYPE_I32, PER_TARGET},
                          [TYPE] = {"type", DTYPE_I32, PER_TOKEN}},
                .types = TYPE + 1,
                .targets = objective_row_targets,
                .add = tags_add},
        .check = tags_check,
        .head = &head,
        .sum_count = SUM_COUNT,
        .sums_add = sums_add,
        .scores_of_sums = scores_of_sums,
        .say_evaluation = say_evaluation,
};
