/* Records of several texts that an embedder compares: an anchor, a positive, maybe negatives and a score. */
#include "data/rows/row_formats.h"

#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "data/rows/dataset_build.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/tokenizer.h"

enum { TEXTS_MAX = 64 };

/* The texts of a record in their order, and its score. */
struct texts_record {
	const char *key[TEXTS_MAX];
	const json_t *text[TEXTS_MAX];
	int64_t count;
	const char *score_key;
	const json_t *score; /* or vectors */
};

/* sentence-transformers takes a column with one of these names for the label. */
static int is_score_name(const char *name)
{
	return !strcmp(name, "label") || !strcmp(name, "labels") || !strcmp(name, "score") ||
	       !strcmp(name, "scores");
}

static int take(struct texts_record *r, const struct dataset_builder *b, const char *key, const json_t *value)
{
	if (r->count == TEXTS_MAX)
		return err_set(ERR_INPUT, "%s: the row has more than %d texts", b->where, TEXTS_MAX);
	r->key[r->count] = key;
	r->text[r->count++] = value;
	return 0;
}

static int take_field(
        struct texts_record *r, struct dataset_builder *b, const json_t *record, enum row_field field)
{
	const char *key = NULL;
	const json_t *value = row_field(b->names, record, field, &key);

	if (!value)
		return dataset_builder_missing(b, record, field);
	return take(r, b, key, value);
}

/* One text: `text` or the column that the user named, else the first one that is a text. */
static int only_find(struct texts_record *r, struct dataset_builder *b, const json_t *record)
{
	const char *key = NULL;
	const json_t *value = row_field(b->names, record, ROW_FIELD_TEXT, &key);

	b->seen |= value ? 1u << ROW_FIELD_TEXT : 0;
	if (value)
		return take(r, b, key, value);
	if (b->names->fields[ROW_FIELD_TEXT])
		return dataset_builder_missing(b, record, ROW_FIELD_TEXT);
	json_object_foreach((json_t *)(uintptr_t)record, key, value)
	{
		if (json_is_string(value))
			return take(r, b, key, value);
	}
	return dataset_builder_missing(b, record, ROW_FIELD_TEXT);
}

/* By the columns that the user named; by their order where none is named. */
static int texts_find(struct texts_record *r, struct dataset_builder *b, const json_t *record)
{
	const char *const *named = b->names->fields, *key;
	const json_t *value;
	int rc = 0;

	if (b->texts->is_alone)
		return only_find(r, b, record);
	r->score = row_field(b->names, record, ROW_FIELD_SCORE, &r->score_key);
	if (named[ROW_FIELD_SCORE] && !r->score)
		return dataset_builder_missing(b, record, ROW_FIELD_SCORE);
	if (named[ROW_FIELD_ANCHOR] || named[ROW_FIELD_POSITIVE] || named[ROW_FIELD_NEGATIVE]) {
		rc = take_field(r, b, record, ROW_FIELD_ANCHOR);
		if (!rc && (named[ROW_FIELD_POSITIVE] || b->texts->least > 1))
			rc = take_field(r, b, record, ROW_FIELD_POSITIVE);
		if (!rc && named[ROW_FIELD_NEGATIVE])
			rc = take_field(r, b, record, ROW_FIELD_NEGATIVE);
		return rc;
	}
	json_object_foreach((json_t *)(uintptr_t)record, key, value)
	{
		if (!rc && value != r->score && !is_score_name(key))
			rc = take(r, b, key, value);
	}
	return rc;
}

static int texts_check(const struct texts_record *r, struct dataset_builder *b, const json_t *record)
{
	char columns[ROW_COLUMNS_BYTES];

	row_columns(columns, record);
	if (r->count < b->texts->least && b->texts->least == 1)
		return err_set(ERR_INPUT,
		        "%s: %s needs a text in a row; the row has %s; name it with field_anchor", b->where,
		        b->texts->wanted_by, columns);
	if (r->count < b->texts->least)
		return err_set(ERR_INPUT,
		        "%s: %s needs %d texts in a row, an anchor, a positive%s; the row has %s; name them "
		        "with "
		        "field_anchor, field_positive and field_negative",
		        b->where, b->texts->wanted_by, b->texts->least,
		        b->texts->least > 2 ? " and a negative" : "", columns);
	for (int64_t i = 0; i < r->count; i++)
		if (!json_is_string(r->text[i]))
			return err_set(ERR_INPUT,
			        "%s: \"%s\" is %s; expected a text; remove the column, or name those to read "
			        "with "
			        "field_anchor, field_positive and field_negative",
			        b->where, r->key[i], json_kind_name(r->text[i]));
	if (b->d->texts && b->d->texts != r->count)
		return err_set(ERR_INPUT,
		        "%s: the row has %lld texts and earlier rows have %lld; all must have the same",
		        b->where, (long long)r->count, (long long)b->d->texts);
	if (b->texts->needs_score && !r->score && !(b->texts->may_lack_score && r->count > 2))
		return err_set(ERR_INPUT,
		        "%s: %s needs a %s in each row; the row has %s; set field_score to the column "
		        "that holds it",
		        b->where, b->texts->wanted_by, b->texts->has_vectors ? "teacher's vector" : "score",
		        columns);
	return 0;
}

/* Margins of the negatives: as they are, or the score of the positive minus those of the negatives. */
static int margins_read(float *score, const struct texts_record *r, const struct dataset_builder *b)
{
	int64_t count = json_is_array(r->score) ? (int64_t)json_array_size(r->score) : 1,
	        negatives = r->count - 2, margins = count == negatives;
	float positive = 0, value;
	int rc = 0;

	if (!margins && count != negatives + 1)
		return err_set(ERR_INPUT,
		        "%s: \"%s\" has %lld numbers; the row has %lld negative%s: expected a margin for "
		        "each, or a score for the positive and each negative",
		        b->where, r->score_key, (long long)count, (long long)negatives, plural_s(negatives));
	if (!margins)
		rc = row_number_read(&positive, b, r->score_key, json_array_get(r->score, 0));
	for (int64_t i = 0; i < negatives && !rc; i++) {
		const json_t *from =
		        json_is_array(r->score) ? json_array_get(r->score, (size_t)(i + !margins)) : r->score;

		rc = row_number_read(&value, b, r->score_key, from);
		score[i + 2] = margins ? value : positive - value;
	}
	return rc;
}

/* ---- vectors of a teacher ---- */

/* One vector: as long as the model's, and as those of earlier rows. */
static int vector_read(
        float *vector, int64_t *count, const struct dataset_builder *b, const char *key, const json_t *value)
{
	int64_t found = (int64_t)json_array_size(value), wanted = b->texts->vector_count;
	int rc = 0;

	if (!json_is_array(value) || (!found && !wanted))
		return row_value_refuse(b, key, value, "a list of numbers, the teacher's vector");
	if (wanted && found != wanted)
		return err_set(ERR_INPUT,
		        "%s: \"%s\" has %lld numbers and the model's vectors have %lld; take a teacher whose "
		        "vectors have as many",
		        b->where, key, (long long)found, (long long)wanted);
	if (*count && found != *count)
		return err_set(ERR_INPUT,
		        "%s: \"%s\" has %lld numbers and earlier vectors have %lld; all must have the same",
		        b->where, key, (long long)found, (long long)*count);
	*count = found;
	for (int64_t i = 0; vector && i < found && !rc; i++) {
		const json_t *number = json_array_get(value, (size_t)i);

		rc = json_is_boolean(number) ? row_value_refuse(b, key, number, "a number")
		                             : row_number_read(&vector[i], b, key, number);
	}
	return rc;
}

/* Those of each text, [r->count, b->d->vector_count]; mem_free. One vector is for all texts. */
static int vectors_take(
        float **vectors, struct dataset_builder *b, const struct texts_record *r, const json_t *value)
{
	const json_t *first = json_array_get(value, 0);
	int is_of_each = json_is_array(first);
	int64_t count = b->d->vector_count;
	int rc = 0;

	if (is_of_each && (int64_t)json_array_size(value) != r->count)
		return err_set(ERR_INPUT,
		        "%s: \"%s\" has %zu vectors; the row has %lld text%s: expected one vector for all, "
		        "or "
		        "one for each",
		        b->where, r->score_key, json_array_size(value), (long long)r->count,
		        plural_s(r->count));
	rc = vector_read(NULL, &count, b, r->score_key, is_of_each ? first : value);
	if (rc)
		return rc;
	*vectors = mem_alloc((size_t)(r->count * count), sizeof(**vectors));
	if (!*vectors)
		return ERR_NOMEM;
	for (int64_t i = 0; i < r->count && !rc; i++)
		rc = vector_read(*vectors + i * count, &count, b, r->score_key,
		        is_of_each ? json_array_get(value, (size_t)i) : value);
	b->d->vector_count = rc ? b->d->vector_count : count;
	return rc;
}

/* The column may be a text, as a cell of CSV. */
static int vectors_read(float **vectors, struct dataset_builder *b, const struct texts_record *r)
{
	const char *text = json_string_value(r->score);
	json_t *list = NULL;
	int rc = text ? json_parse_exact(&list, r->score_key, text, json_string_length(r->score), 1) : 0;

	if (rc == ERR_INPUT)
		rc = row_value_refuse(b, r->score_key, r->score, "a list of numbers, the teacher's vector");
	rc = rc ? rc : vectors_take(vectors, b, r, text ? list : r->score);
	json_decref(list);
	return rc;
}

/* ---- scores ---- */

/* The score of each text, 0 for those that have none. */
static int scores_read(float *score, const struct texts_record *r, const struct dataset_builder *b)
{
	int rc;

	if (!b->texts->needs_score || b->texts->has_vectors)
		return 0;
	if (!r->score) {
		score[0] = 1; /* texts_check has seen that it may be missing */
		return 0;
	}
	if (b->texts->scores_negatives)
		return margins_read(score, r, b);
	rc = row_number_read(&score[0], b, r->score_key, r->score);
	if (!rc && b->texts->scores_sides && score[0] != 0 && score[0] != 1)
		return row_value_refuse(b, r->score_key, r->score, "0 or 1");
	return rc;
}

/* Appends a text with its prompt. */
static int encode(struct dataset_builder *b, struct token_list *ids, const json_t *text, const char *prompt)
{
	struct token_list body = {0};
	struct row_span own;
	size_t prompt_bytes = prompt ? strlen(prompt) : 0, bytes = json_string_length(text);
	char *whole = mem_alloc(prompt_bytes + bytes + 1, 1);
	int rc = whole ? 0 : ERR_NOMEM;

	if (!rc) {
		memcpy(whole, prompt ? prompt : "", prompt_bytes);
		memcpy(whole + prompt_bytes, json_string_value(text), bytes);
		rc = tokenizer_encode(
		        b->options->tokenizer, &body, whole, prompt_bytes + bytes, ADD_SPECIAL_NONE);
		rc = rc ? err_note(rc, "%s", b->where) : 0;
	}
	if (!rc)
		rc = row_text_append(ids, &own, b, &body);
	token_list_free(&body);
	mem_free(whole);
	return rc;
}

/* Appends the record's texts as rows. */
static int texts_add(struct dataset_builder *b, const struct texts_record *r, const float *vectors)
{
	int64_t end[TEXTS_MAX + 1] = {0}, dropped = b->d->counts.dropped;
	float score[TEXTS_MAX] = {0};
	int rc = scores_read(score, r, b);

	for (int64_t i = 0; i < r->count && !rc; i++) {
		dataset_builder_note_read(b, r->key[i]);
		rc = encode(b, b->ids, r->text[i], b->texts->prompt[i > 0]);
		end[i + 1] = b->ids->count;
		if (!rc && end[i + 1] == end[i])
			rc = err_set(
			        ERR_INPUT, "%s: \"%s\" has no tokens; remove the row", b->where, r->key[i]);
	}
	if (r->score && b->texts->needs_score)
		dataset_builder_note_read(b, r->score_key);
	if (rc || b->d->counts.dropped > dropped) {
		b->d->counts.dropped = dropped + (b->d->counts.dropped > dropped);
		return rc;
	}
	b->seen |= 1u << ROW_FIELD_ANCHOR | 1u << ROW_FIELD_POSITIVE | 1u << ROW_FIELD_NEGATIVE |
	           1u << ROW_FIELD_SCORE;
	b->d->texts = r->count;
	for (int64_t i = 0; i < r->count && !rc; i++) {
		b->vector = vectors ? vectors + i * b->d->vector_count : NULL;
		rc = dataset_builder_add_text(
		        b, b->ids->ids + end[i], end[i + 1] - end[i], score[i], end[i + 1] - end[i]);
	}
	b->vector = NULL;
	return rc;
}

int row_texts_read(struct dataset_builder *b, const json_t *record)
{
	struct texts_record r = {0};
	float *vectors = NULL;
	int rc = dataset_builder_need_tokenizer(b);

	if (!rc)
		rc = texts_find(&r, b, record);
	if (!rc)
		rc = texts_check(&r, b, record);
	if (!rc && b->texts->has_vectors)
		rc = vectors_read(&vectors, b, &r);
	if (!rc)
		rc = texts_add(b, &r, vectors);
	mem_free(vectors);
	return rc;
}

int row_texts_is_mine(const struct dataset_builder *b, const json_t *record)
{
	(void)b;
	(void)record;
	return 0;
}
