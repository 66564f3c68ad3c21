/* Records of words with a label each: the first token of a word has its label, the others none. */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "data/chat/row_fields.h"
#include "data/rows/dataset_build.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/tokenizer.h"

/* Usual names of the columns, in the order in which they are looked for. */
static const char *const word_names[] = {"tokens", "words", NULL};
const char *const dataset_tag_names[] = {"ner_tags", "tags", "labels", "pos_tags", "chunk_tags", NULL};

/* The list that the user named, or the first one with a usual name. */
static const json_t *list_find(const char **key, struct dataset_builder *b, const json_t *record,
        enum row_field field, const char *const *usual)
{
	const json_t *value = NULL;

	*key = b->names->fields[field];
	if (*key)
		return json_object_get(record, *key);
	for (int i = 0; usual[i] && !value; i++) {
		*key = usual[i];
		value = json_object_get(record, *key);
	}
	*key = value ? *key : usual[0];
	return value;
}

static int list_check(const struct dataset_builder *b, const char *key, const json_t *value, const char *what)
{
	return json_is_array(value) ? 0
	                            : err_set(ERR_INPUT, "%s: \"%s\" is %s; expected a list of %s", b->where,
	                                      key, json_kind_name(value), what);
}

static int label_add(struct dataset_builder *b, const char *key, const json_t *value)
{
	float label = 0;
	int rc = json_is_integer(value) && json_integer_value(value) == DATASET_IGNORE
	                 ? 0
	                 : row_class_read(&label, b, key, value);

	if (rc)
		return rc;
	return token_list_add(b->targets,
	        json_is_integer(value) && json_integer_value(value) == DATASET_IGNORE ? DATASET_IGNORE
	                                                                              : (int32_t)label);
}

static int ignored_add(struct dataset_builder *b, int64_t count)
{
	int rc = 0;

	for (int64_t i = 0; i < count && !rc; i++)
		rc = token_list_add(b->targets, DATASET_IGNORE);
	return rc;
}

/* As transformers tokenizes words that are split already: each for itself. */
static int words_encode(struct dataset_builder *b, const char *word_key, const json_t *words,
        const char *tag_key, const json_t *tags)
{
	int rc = 0;

	for (size_t i = 0; i < json_array_size(words) && !rc; i++) {
		const json_t *word = json_array_get(words, i);
		int64_t before = b->ids->count;

		if (!json_is_string(word))
			return err_set(ERR_INPUT, "%s: \"%s\"[%zu] is %s; expected a word", b->where,
			        word_key, i, json_kind_name(word));
		rc = tokenizer_encode(b->options->tokenizer, b->ids, json_string_value(word),
		        json_string_length(word), ADD_SPECIAL_NONE);
		if (rc)
			return err_note(rc, "%s", b->where);
		if (b->ids->count > before)
			rc = label_add(b, tag_key, json_array_get(tags, i));
		if (!rc)
			rc = ignored_add(b, b->ids->count - b->targets->count);
	}
	return rc;
}

/* Puts what the tokenizer has around a text around the words; the last ones go if all are too long. */
static int surround(struct dataset_builder *b)
{
	struct token_list ids = *b->ids, labels = *b->targets;
	struct row_span own;
	int rc;

	*b->ids = *b->targets = (struct token_list){0};
	rc = row_text_append(b->ids, &own, b, &ids);
	if (!rc)
		rc = ignored_add(b, b->ids->count);
	if (!rc && own.count)
		memcpy(b->targets->ids + own.first, labels.ids, (size_t)own.count * sizeof(*labels.ids));
	token_list_free(&ids);
	token_list_free(&labels);
	return rc;
}

int row_words_read(struct dataset_builder *b, const json_t *record)
{
	const char *word_key, *tag_key;
	const json_t *ids = row_field(b->names, record, ROW_FIELD_INPUT_IDS, NULL),
	             *words = list_find(&word_key, b, record, ROW_FIELD_TEXT, word_names),
	             *tags = list_find(&tag_key, b, record, ROW_FIELD_LABEL, dataset_tag_names);
	int64_t dropped = b->d->counts.dropped;
	int rc = 0;

	b->ids->count = b->targets->count = 0;
	if (json_is_array(ids)) {
		words = ids;
		word_key = "input_ids";
		if (!b->names->fields[ROW_FIELD_LABEL] && json_object_get(record, "labels"))
			tags = json_object_get(record, tag_key = "labels");
	}
	if (!words || !tags)
		return err_set(ERR_INPUT,
		        "%s: no column \"%s\"; token_classification needs a list of words and a list of "
		        "their "
		        "labels, as \"tokens\" and \"ner_tags\"; name them with field_text and field_label",
		        b->where, words ? tag_key : word_key);
	rc = list_check(b, word_key, words, "words");
	if (!rc)
		rc = list_check(b, tag_key, tags, "labels");
	if (!rc && json_array_size(words) != json_array_size(tags))
		rc = err_set(ERR_INPUT, "%s: \"%s\" has %zu entries, \"%s\" %zu; expected one label each",
		        b->where, word_key, json_array_size(words), tag_key, json_array_size(tags));
	if (rc)
		return rc;
	dataset_builder_note_read(b, word_key);
	dataset_builder_note_read(b, tag_key);
	b->seen |= 1u << ROW_FIELD_TEXT | 1u << ROW_FIELD_LABEL;
	if (words == ids) {
		rc = row_ids_append(b->ids, ids, b->where, "input_ids");
		for (size_t i = 0; i < json_array_size(tags) && !rc; i++)
			rc = label_add(b, tag_key, json_array_get(tags, i));
		dataset_builder_note_read(b, "attention_mask");
		dataset_builder_note_read(b, "token_type_ids");
	} else {
		rc = dataset_builder_need_tokenizer(b);
		if (!rc)
			rc = words_encode(b, word_key, words, tag_key, tags);
		if (!rc)
			rc = surround(b);
	}
	if (rc || b->d->counts.dropped > dropped)
		return rc;
	return dataset_builder_add(b, b->ids->ids, b->targets->ids, b->ids->count, 0);
}
