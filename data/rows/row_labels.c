/* Records of a text, or two, and a label: for classifiers and regression. */
#include "data/rows/row_formats.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "data/rows/dataset_build.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/tokenizer.h"

/* Usual names of the first text, behind those of `text`. */
static const char *const first_names[] = {"sentence", "sentence1", "premise", "question1"};

static const json_t *first_text(const char **key, struct dataset_builder *b, const json_t *record)
{
	const json_t *value = row_field(b->names, record, ROW_FIELD_TEXT, key);

	for (size_t i = 0;
	        !value && !b->names->fields[ROW_FIELD_TEXT] && i < sizeof(first_names) / sizeof(*first_names);
	        i++) {
		*key = first_names[i];
		value = json_object_get(record, *key);
	}
	return value;
}

/* ---- labels ---- */

/* The class of a name. -1: none has it. */
static int64_t class_named(const struct dataset_labels *l, const char *name)
{
	for (int64_t i = 0; i < l->count && l->names; i++)
		if (l->names[i] && !strcmp(l->names[i], name))
			return i;
	return -1;
}

int row_class_read(float *label, const struct dataset_builder *b, const char *key, const json_t *value)
{
	const struct dataset_labels *l = &b->options->labels;
	const char *text = json_string_value(value);
	char *end = NULL;
	int64_t class = json_is_true(value) ? 1 : json_integer_value(value);

	if (text && *text) {
		class = class_named(l, text);
		if (class < 0)
			class = strtoll(text, &end, 10);
		if (end && (end == text || *end))
			return err_set(ERR_INPUT,
			        "%s: \"%s\" is %s, which is no label of the model (id2label of config.json); "
			        "number labels "
			        "from 0, or name them there",
			        b->where, key, text);
	} else if (!json_is_integer(value) && !json_is_boolean(value)) {
		return row_value_refuse(b, key, value, "a label: an integer from 0, or its name");
	}
	if (class < 0 || class >= l->count)
		return err_set(ERR_INPUT,
		        "%s: \"%s\" is %" PRId64 ", but the model has labels 0 to %" PRId64 "; %s", b->where,
		        key, class, l->count - 1,
		        class < 0 ? "remove the row" : "set num_labels to train more");
	*label = (float)class;
	return 0;
}

/* Of a cross-encoder, a number from 0 to 1. */
static int number_read(float *label, const struct dataset_builder *b, const char *key, const json_t *value)
{
	int rc = row_number_read(label, b, key, value);

	if (!rc && b->options->labels.is_share && (*label < 0 || *label > 1))
		return err_set(ERR_INPUT, "%s: \"%s\" is %g; expected a number from 0 to 1", b->where, key,
		        (double)*label);
	return rc;
}

static int label_read(float *label, struct dataset_builder *b, const json_t *record)
{
	const char *key = NULL;
	const json_t *value = row_field(b->names, record, ROW_FIELD_LABEL, &key);

	if (!value)
		return dataset_builder_missing(b, record, ROW_FIELD_LABEL);
	dataset_builder_note_read(b, key);
	b->seen |= 1u << ROW_FIELD_LABEL;
	return b->options->labels.is_regression ? number_read(label, b, key, value)
	                                        : row_class_read(label, b, key, value);
}

/* ---- tokens ---- */

/* Ids that are there already, with the types of their tokens. *second: where the second text begins. */
static int ids_read(int64_t *second, struct dataset_builder *b, const json_t *record, const json_t *ids)
{
	const json_t *types = json_object_get(record, "token_type_ids");
	int64_t count = (int64_t)json_array_size(ids);
	int rc = row_ids_append(b->ids, ids, b->where, "input_ids");

	*second = count;
	dataset_builder_note_read(b, "input_ids");
	if (!rc && types && (int64_t)json_array_size(types) != count)
		rc = err_set(ERR_INPUT, "%s: token_type_ids has %zu entries, input_ids %" PRId64, b->where,
		        json_array_size(types), count);
	for (int64_t i = count - 1;
	        !rc && types && i >= 0 && json_integer_value(json_array_get(types, (size_t)i)) == 1; i--)
		*second = i;
	if (types)
		dataset_builder_note_read(b, "token_type_ids");
	for (int64_t i = 0; !rc && types && i < count; i++)
		if (json_integer_value(json_array_get(types, (size_t)i)) != (i >= *second))
			rc = err_set(ERR_INPUT, "%s: token_type_ids must be 0, then 1", b->where);
	return rc;
}

static int body_encode(
        struct dataset_builder *b, struct token_list *ids, const char *key, const json_t *value)
{
	int rc;

	if (!json_is_string(value))
		return err_set(
		        ERR_INPUT, "%s: \"%s\" is %s; expected a text", b->where, key, json_kind_name(value));
	dataset_builder_note_read(b, key);
	rc = tokenizer_encode(b->options->tokenizer, ids, json_string_value(value), json_string_length(value),
	        ADD_SPECIAL_NONE);
	return rc ? err_note(rc, "%s", b->where) : 0;
}

/* The tokens around two texts, with a letter as either: where the letters are says which go where. */
static int between_find(
        struct token_list *all, int64_t at[2], int64_t *letter_count, const struct tokenizer *t)
{
	struct token_list letter = {0};
	int rc = tokenizer_encode(t, &letter, "a", 1, ADD_SPECIAL_NONE), found = 0;

	if (!rc)
		rc = tokenizer_encode_pair(t, all, "a", 1, "a", 1, ADD_SPECIAL_ALL);
	*letter_count = letter.count;
	for (int64_t i = 0; !rc && letter.count && found < 2 && i + letter.count <= all->count; i++)
		if (!memcmp(all->ids + i, letter.ids, (size_t)letter.count * sizeof(*letter.ids))) {
			at[found++] = i;
			i += letter.count - 1;
		}
	token_list_free(&letter);
	return rc           ? rc
	       : found == 2 ? 0
	                    : err_set(ERR_UNSUPPORTED, "the tokenizer does not keep two texts apart");
}

/* The longer of both loses its end until they fit, as in transformers (longest_first). */
static void shorten(int64_t *a, int64_t *b, int64_t most)
{
	while (*a + *b > most && *a + *b > 0)
		(*(*a > *b ? a : b))--;
}

static int pair_encode(int64_t *second, struct dataset_builder *b, const struct token_list *body)
{
	struct token_list around = {0};
	int64_t at[2] = {0}, letter = 0, kept[2] = {body[0].count, body[1].count}, both = kept[0] + kept[1];
	int rc = between_find(&around, at, &letter, b->options->tokenizer);

	if (!rc)
		rc = dataset_builder_fit_text(&both, b, kept[0] + kept[1], around.count - 2 * letter);
	shorten(&kept[0], &kept[1], both);
	if (!rc && both) {
		rc = token_list_extend(b->ids, around.ids, at[0]);
		rc = rc ? rc : token_list_extend(b->ids, body[0].ids, kept[0]);
		rc = rc ? rc : token_list_extend(b->ids, around.ids + at[0] + letter, at[1] - at[0] - letter);
		*second = b->ids->count;
		rc = rc ? rc : token_list_extend(b->ids, body[1].ids, kept[1]);
		rc = rc ? rc
		        : token_list_extend(
		                  b->ids, around.ids + at[1] + letter, around.count - at[1] - letter);
	}
	token_list_free(&around);
	return rc;
}

static int texts_read(int64_t *second, struct dataset_builder *b, const json_t *record)
{
	const char *key = NULL, *pair_key = NULL;
	const json_t *text = first_text(&key, b, record),
	             *pair = row_field(b->names, record, ROW_FIELD_TEXT_PAIR, &pair_key);
	struct token_list body[2] = {{0}, {0}};
	struct row_span own;
	int rc = dataset_builder_need_tokenizer(b);

	if (!rc && !text)
		return dataset_builder_missing(b, record, ROW_FIELD_TEXT);
	if (!rc && !pair && (b->names->fields[ROW_FIELD_TEXT_PAIR] || b->options->labels.is_share))
		return dataset_builder_missing(b, record, ROW_FIELD_TEXT_PAIR);
	if (!rc)
		rc = body_encode(b, &body[0], key, text);
	if (!rc && pair)
		rc = body_encode(b, &body[1], pair_key, pair);
	if (!rc)
		rc = pair ? pair_encode(second, b, body) : row_text_append(b->ids, &own, b, &body[0]);
	if (!rc && !pair)
		*second = b->ids->count;
	b->seen |= 1u << ROW_FIELD_TEXT | (pair ? 1u << ROW_FIELD_TEXT_PAIR : 0);
	token_list_free(&body[0]);
	token_list_free(&body[1]);
	return rc;
}

int row_labels_read(struct dataset_builder *b, const json_t *record)
{
	const json_t *ids = row_field(b->names, record, ROW_FIELD_INPUT_IDS, NULL);
	int64_t second = 0, dropped = b->d->counts.dropped;
	float label = 0;
	int rc;

	if (b->options->labels.is_of_tokens)
		return row_words_read(b, record);
	rc = label_read(&label, b, record);

	if (!rc)
		rc = json_is_array(ids) ? ids_read(&second, b, record, ids) : texts_read(&second, b, record);
	if (rc || b->d->counts.dropped > dropped)
		return rc;
	if (!b->ids->count)
		return err_set(ERR_INPUT, "%s: the text has no tokens; remove the row", b->where);
	b->d->texts = 1;
	return dataset_builder_add_text(b, b->ids->ids, b->ids->count, label, second);
}

int row_labels_is_mine(const struct dataset_builder *b, const json_t *record)
{
	(void)b;
	(void)record;
	return 0;
}
