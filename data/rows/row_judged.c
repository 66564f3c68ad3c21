/* Answers that are judged one by one (KTO): each row comes again with the answer of another one.
 *
 * Rows exchange answers in groups of options->judged_group, in the order of the files: each gets that of the
 * row before it, the first of a group that of its last. So a group holds each answer twice, and so does the
 * group that TRL makes of a batch. A row whose prompt leaves no room for an answer is in no group. */
#include "data/rows/dataset_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "data/tokenizer/token_list.h"

struct answer {
	struct token_list ids, labels; /* whole, also beyond max_length */
	int64_t first;                 /* its first trained token; those before are the prompt */
	int is_desirable;
};

struct judged {
	int is_desirable; /* the record being read */
	int64_t count, group;
	struct answer *answers; /* [group] the first `count` wait */
};

static int is_word(const char *text, const char *lower)
{
	while (*text && (*text | 32) == *lower)
		text++, lower++;
	return !*text && !*lower;
}

/* 1, 0, or -1: it is neither true nor false. */
static int truth_of(const json_t *label)
{
	const char *text = json_string_value(label);

	if (json_is_boolean(label))
		return json_is_true(label);
	if (json_is_number(label))
		return json_number_value(label) == 1 ? 1 : json_number_value(label) == 0 ? 0 : -1;
	if (!text)
		return -1;
	return !strcmp(text, "1") || is_word(text, "true")    ? 1
	       : !strcmp(text, "0") || is_word(text, "false") ? 0
	                                                      : -1;
}

int row_judged_begin(struct dataset_builder *b, const json_t *record)
{
	const char *key = NULL;
	const json_t *label = row_field(b->names, record, ROW_FIELD_LABEL, &key);
	char columns[ROW_COLUMNS_BYTES];

	if (!b->judged)
		b->judged = mem_alloc(1, sizeof(*b->judged));
	if (!b->judged)
		return ERR_NOMEM;
	row_columns(columns, record);
	if (!label)
		return err_set(ERR_INPUT,
		        "%s: preference_loss=kto needs a label that says whether the answer is desirable; "
		        "the "
		        "row has %s; set field_label to its column",
		        b->where, columns);
	(void)dataset_builder_get(b, record, ROW_FIELD_LABEL);
	b->judged->is_desirable = truth_of(label);
	if (b->judged->is_desirable >= 0)
		return 0;
	return row_value_refuse(b, key, label, "true or false");
}

/* Its prompt with the answer of `other`. The row's first label says whether its own is desirable. */
static int row_add(struct dataset_builder *b, const struct answer *a, const struct answer *other)
{
	int64_t most = b->options->max_length_tokens;
	int rc;

	b->ids->count = b->targets->count = 0;
	rc = token_list_extend(b->ids, a->ids.ids, a->first);
	if (!rc)
		rc = token_list_extend(
		        b->ids, other->ids.ids + other->first, other->ids.count - other->first);
	if (!rc)
		rc = token_list_extend(b->targets, a->labels.ids, a->first);
	if (!rc)
		rc = token_list_extend(
		        b->targets, other->labels.ids + other->first, other->ids.count - other->first);
	if (rc)
		return rc;
	b->targets->ids[0] = a->is_desirable ? b->ids->ids[0] : DATASET_IGNORE;
	rc = dataset_builder_append(
	        b, b->ids->ids, b->targets->ids, most ? min_i64(most, b->ids->count) : b->ids->count, 0);
	return rc < 0 ? rc : 0;
}

int row_judged_flush(struct dataset_builder *b)
{
	struct judged *j = b->judged;
	int rc = 0;

	for (int64_t i = 0; j && i < j->count && !rc && !b->is_made; i++) {
		rc = row_add(b, &j->answers[i], &j->answers[i]);
		if (!rc && !b->is_made)
			rc = row_add(b, &j->answers[i], &j->answers[(i ? i : j->count) - 1]);
		b->d->counts.desirable += j->answers[i].is_desirable;
	}
	if (j)
		j->count = 0;
	return rc;
}

/* The first trained token; `kept` if there is none that another predicts. */
static int64_t answer_begin(const int32_t *labels, int64_t kept, int64_t masked)
{
	for (int64_t t = 0; t < kept; t++)
		if (labels ? labels[t] != DATASET_IGNORE : t >= masked)
			return t ? t : kept > 1 ? 0 : kept;
	return kept;
}

int row_judged_add(struct dataset_builder *b, const int32_t *ids, const int32_t *labels, int64_t token_count,
        int64_t masked, int64_t kept)
{
	struct judged *j = b->judged;
	struct answer *a;
	int rc;

	if (kept == 0) {
		b->d->counts.empty += token_count == 0;
		return 0;
	}
	if (answer_begin(labels, kept, masked) == kept) {
		dataset_builder_note_without_target(b);
		return 0;
	}
	if (!j->answers) {
		j->group = b->options->judged_group;
		j->answers = mem_alloc((size_t)j->group, sizeof(*j->answers));
		if (!j->answers)
			return ERR_NOMEM;
	}
	a = &j->answers[j->count];
	a->ids.count = a->labels.count = 0;
	a->first = answer_begin(labels, kept, masked);
	a->is_desirable = j->is_desirable;
	rc = token_list_extend(&a->ids, ids, token_count);
	if (!rc)
		rc = token_list_extend(&a->labels, labels ? labels : ids, token_count);
	for (int64_t t = 0; !rc && !labels && t < masked && t < token_count; t++)
		a->labels.ids[t] = DATASET_IGNORE;
	if (rc)
		return rc;
	return ++j->count == j->group ? row_judged_flush(b) : 0;
}

void row_judged_free(struct judged *judged)
{
	if (!judged)
		return;
	for (int64_t i = 0; judged->answers && i < judged->group; i++) {
		token_list_free(&judged->answers[i].ids);
		token_list_free(&judged->answers[i].labels);
	}
	mem_free(judged->answers);
	mem_free(judged);
}

int row_judged_check(const struct dataset_builder *b)
{
	const struct dataset_counts *counts = &b->d->counts;
	const char *path = b->options->path;
	int64_t rows = b->d->row_count / 2;

	if (!rows)
		return err_set(ERR_INPUT,
		        "%s: no row is left: %" PRId64 " longer than max_length were dropped, %" PRId64
		        " have no answer to train on within max_length=%" PRId64,
		        path, counts->dropped, counts->without_target, b->options->max_length_tokens);
	if (counts->without_target)
		log_warn("%s: %" PRId64
		         " row%s left out: no token of the answer is within max_length; the first is %s",
		        path, counts->without_target, counts->without_target == 1 ? " is" : "s are",
		        counts->without_target_first);
	if (counts->desirable == 0 || counts->desirable == rows)
		log_warn("%s: every answer is %s; KTO learns from both kinds: add answers of the other", path,
		        counts->desirable ? "desirable" : "undesirable");
	return 0;
}
