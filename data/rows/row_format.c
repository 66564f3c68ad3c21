/* The table of formats, and the choice of one by a row's columns. */
#include "data/rows/row_formats.h"

#include "base/err.h"
#include "base/str.h"
#include "data/rows/dataset_build.h"

#include <string.h>

static const struct {
	const char *name;
	unsigned fields; /* bits of enum row_field */
	int (*is_mine)(const struct dataset_builder *b, const json_t *record);
	int (*read)(struct dataset_builder *b, const json_t *record);
} formats[] = {[DATASET_FORMAT_AUTO] = {"auto", 0, NULL, NULL},
#define ROW(id, name, aliases, function, fields, is_mine)                                                    \
	[DATASET_FORMAT_##id] = {name, fields, is_mine, function##_read},
        ROW_FORMATS(ROW)};
enum { FORMAT_COUNT = sizeof(formats) / sizeof(formats[0]), FORMAT_FIRST = DATASET_FORMAT_AUTO + 1 };

const char *dataset_format_name(enum dataset_format format)
{
	return formats[format].name;
}

/* Bits of the fields in the row, and in *named those with names from the user. */
static unsigned fields_of(unsigned *named, const struct row_names *names, const json_t *record)
{
	unsigned found = 0;

	*named = 0;
	for (int f = 0; f < ROW_FIELD_COUNT; f++) {
		found |= row_field(names, record, (enum row_field)f, NULL) ? 1u << f : 0;
		*named |= names->fields[f] ? 1u << f : 0;
	}
	return found;
}

/* Appends "prompt and completion (prompt_completion)" or "messages (messages or sharegpt)". Returns the next
 * format with other fields. */
static int add_known(struct str *out, const struct row_names *names, int format)
{
	unsigned fields = formats[format].fields;
	const char *and = "";

	for (int f = 0; f < ROW_FIELD_COUNT; f++) {
		const char *list = row_field_names(names, (enum row_field)f);
		int len = names->fields[f] ? (int)strlen(list) : (int)strcspn(list, ",");

		if (!(fields >> f & 1))
			continue;
		str_printf(out, "%s%.*s", and, len, list);
		and = " and ";
	}
	str_printf(out, " (%s", formats[format].name);
	while (++format < FORMAT_COUNT && formats[format].fields == fields)
		str_printf(out, " or %s", formats[format].name);
	str_add(out, ")");
	return format;
}

/* A column that the user named and the row lacks: probably the reason that no format fits. ROW_FIELD_COUNT =
 * none. */
static enum row_field named_and_missing(unsigned named, unsigned there)
{
	for (int f = 0; f < ROW_FIELD_COUNT; f++)
		for (int i = FORMAT_FIRST; i < FORMAT_COUNT; i++)
			if (named >> f & 1 && !(there >> f & 1) && formats[i].fields >> f & 1)
				return (enum row_field)f;
	return ROW_FIELD_COUNT;
}

/* The column with a list of objects, as in {"data": [rows]}; NULL: none. */
static const char *column_of_rows(const json_t *record)
{
	void *at = json_object_iter((json_t *)record);

	while (at && !json_is_object(json_array_get(json_object_iter_value(at), 0)))
		at = json_object_iter_next((json_t *)record, at);
	return at ? json_object_iter_key(at) : NULL;
}

/* Whether only pairs are read, or none; and the key that says so, for messages. */
static int wants_pairs(const struct dataset_builder *b)
{
	return b->options->pairs == DATASET_PAIRS_ONLY || b->options->pairs == DATASET_REWARDS_ONLY;
}

static int wants_no_pairs(const struct dataset_builder *b)
{
	return b->options->pairs == DATASET_PAIRS_NONE || b->options->pairs == DATASET_HIDDEN_ONLY;
}

static const char *pairs_key(const struct dataset_builder *b)
{
	return b->options->pairs == DATASET_REWARDS_ONLY ? "objective=reward" : "preference_loss";
}

static int none_fits(const struct dataset_builder *b, const json_t *record)
{
	const char *rows = column_of_rows(record);
	char columns[ROW_COLUMNS_BYTES];
	struct str known = {0};
	int rc;

	row_columns(columns, record);
	if (rows && json_object_size(record) == 1)
		return err_set(ERR_INPUT,
		        "%s: the rows seem to be the list in \"%s\"; write the list itself to the file, or "
		        "one row a line",
		        b->where, rows);
	if (wants_pairs(b))
		return err_set(ERR_INPUT,
		        "%s: %s needs the columns chosen and rejected; the row has %s; name them with "
		        "field_chosen and field_rejected",
		        b->where, pairs_key(b), columns);
	for (int i = FORMAT_FIRST; i < FORMAT_COUNT;) {
		str_add(&known, i > FORMAT_FIRST ? ", " : "");
		i = add_known(&known, b->names, i);
	}
	rc = err_set(ERR_INPUT,
	        "%s: the row's columns (%s) fit no known format: %s; name the columns with field_ keys, as "
	        "in field_prompt=question field_completion=answer, or set data_format",
	        b->where, columns, known.data ? known.data : "");
	str_free(&known);
	return rc;
}

/* The chosen answer has a column, or ends a chat. */
static int is_pair(unsigned there)
{
	return there & ROW_BIT(REJECTED) && there & (ROW_BIT(CHOSEN) | ROW_BIT(MESSAGES));
}

int row_format_find(enum dataset_format *format, const struct dataset_builder *b, const json_t *record)
{
	unsigned named, there = fields_of(&named, b->names, record);

	if (b->options->pairs == DATASET_TEXTS_ONLY || b->options->pairs == DATASET_LABELS_ONLY) {
		*format = b->options->pairs == DATASET_TEXTS_ONLY ? DATASET_FORMAT_TEXTS
		                                                  : DATASET_FORMAT_LABELS;
		return 0;
	}
	if (!wants_no_pairs(b) && b->options->pairs != DATASET_JUDGED_ONLY && is_pair(there)) {
		*format = DATASET_FORMAT_PREFERENCE;
		return 0;
	}
	for (int wants_named = 1; wants_named >= 0; wants_named--) {
		for (int i = FORMAT_FIRST; i < FORMAT_COUNT; i++)
			if (!(formats[i].fields & ~there) && (!wants_named || formats[i].fields & named) &&
			        (!formats[i].is_mine || formats[i].is_mine(b, record))) {
				*format = (enum dataset_format)i;
				return 0;
			}
		if (named & there && named_and_missing(named, there) < ROW_FIELD_COUNT)
			break; /* one column is as the user says, its partner is missing */
	}
	if (named_and_missing(named, there) < ROW_FIELD_COUNT)
		return dataset_builder_missing(b, record, named_and_missing(named, there));
	return none_fits(b, record);
}

int dataset_builder_check_pairs(const struct dataset_builder *b)
{
	int is_pairs = b->d->format == DATASET_FORMAT_PREFERENCE,
	    is_texts = b->d->format == DATASET_FORMAT_TEXTS,
	    is_labels = b->d->format == DATASET_FORMAT_LABELS;

	if ((is_texts && b->options->pairs != DATASET_TEXTS_ONLY) ||
	        (is_labels && b->options->pairs != DATASET_LABELS_ONLY))
		return err_set(ERR_INPUT, "%s: data_format=%s is for %s", b->where,
		        dataset_format_name(b->d->format),
		        is_texts ? "embeddings; set embedding_loss=mnrl to train an embedder"
		                 : "classifiers; set objective=classification to train one");
	if (!is_texts && b->options->pairs == DATASET_TEXTS_ONLY)
		return err_set(ERR_INPUT,
		        "%s: rows of the format %s; %s needs rows of texts; leave data_format out", b->where,
		        dataset_format_name(b->d->format), b->texts->wanted_by);
	if (!is_labels && b->options->pairs == DATASET_LABELS_ONLY)
		return err_set(ERR_INPUT,
		        "%s: rows of the format %s; a classifier needs a text and a label; leave data_format "
		        "out",
		        b->where, dataset_format_name(b->d->format));
	if (b->options->has_words && b->d->format != DATASET_FORMAT_TEXT)
		return err_set(ERR_INPUT,
		        "%s: rows of the format %s; whole_word_mask=on reads texts; give the rows a column "
		        "text, "
		        "or set whole_word_mask=off",
		        b->where, dataset_format_name(b->d->format));
	if (is_pairs && wants_no_pairs(b))
		return err_set(ERR_INPUT,
		        "%s: pairs of a chosen and a rejected answer; set preference_loss=sigmoid to train "
		        "on pairs; ferry eval does not read them",
		        b->where);
	if ((is_pairs || b->d->format == DATASET_FORMAT_TEXT) && b->options->pairs == DATASET_JUDGED_ONLY)
		return err_set(ERR_INPUT,
		        "%s: rows of the format %s; preference_loss=kto needs a prompt, one answer and a "
		        "label%s",
		        b->where, dataset_format_name(b->d->format),
		        is_pairs ? "; set preference_loss=sigmoid to train on pairs" : "");
	if (!is_pairs && wants_pairs(b))
		return err_set(ERR_INPUT,
		        "%s: rows of the format %s; %s needs pairs, with the columns chosen and "
		        "rejected (field_chosen and field_rejected name others)",
		        b->where, dataset_format_name(b->d->format), pairs_key(b));
	return 0;
}

int row_format_read(struct dataset_builder *b, const json_t *record)
{
	int rc = dataset_builder_check_pairs(b);

	if (!rc && b->options->pairs == DATASET_JUDGED_ONLY)
		rc = row_judged_begin(b, record);
	return rc ? rc : formats[b->d->format].read(b, record);
}

json_t *dataset_builder_get(struct dataset_builder *b, const json_t *record, enum row_field field)
{
	const char *key = NULL;
	json_t *value = row_field(b->names, record, field, &key);

	if (value) {
		b->seen |= 1u << field;
		dataset_builder_note_read(b, key);
	}
	return value;
}

int dataset_builder_missing(const struct dataset_builder *b, const json_t *record, enum row_field field)
{
	const char *list = row_field_names(b->names, field), *key = row_field_key(field);
	char columns[ROW_COLUMNS_BYTES];
	int is_shared = b->set_count > 1 && !b->options->own;

	row_columns(columns, record);
	if (b->names->fields[field])
		return err_set(ERR_INPUT, "%s: no column \"%s\" (set by %s); the row has %s%s%s%s", b->where,
		        list, key, columns, is_shared ? "; columns hold for all data sets, so set " : "",
		        is_shared ? key : "", is_shared ? " to the names of each, separated by commas" : "");
	if (b->options->pairs == DATASET_TEXTS_ONLY || b->options->pairs == DATASET_LABELS_ONLY)
		return err_set(ERR_INPUT,
		        "%s: \"%.*s\" is missing; the row has %s; set %s to the column that holds it",
		        b->where, (int)strcspn(list, ","), list, columns, key);
	return err_set(ERR_INPUT,
	        "%s: \"%.*s\" is missing; the row has %s; set %s to the column that holds it, or set "
	        "data_format to a format other than %s",
	        b->where, (int)strcspn(list, ","), list, columns, key, dataset_format_name(b->d->format));
}

/* Whether a list of names has the usual one and others: rows may have none of them. */
static int is_wider(const char *list, enum row_field field)
{
	static const struct row_names usual = {0};
	const char *name = row_field_names(&usual, field);
	size_t length = strcspn(name, ",");

	for (const char *at = list; strchr(list, ','); at += strcspn(at, ",") + 1) {
		if (!strncmp(at, name, length) && (!at[length] || at[length] == ','))
			return 1;
		if (!at[strcspn(at, ",")])
			break;
	}
	return 0;
}

int dataset_builder_check_seen(const struct dataset_builder *b)
{
	for (int f = 0; f < ROW_FIELD_COUNT; f++) {
		if (!b->names->fields[f] || b->seen >> f & 1 || !b->first_columns[0] ||
		        is_wider(b->names->fields[f], (enum row_field)f))
			continue;
		return err_set(ERR_INPUT,
		        "%s: %s=%s: no row of the format %s has such a column; the first row has %s; name "
		        "one of these, or leave %s out",
		        b->options->path, row_field_key((enum row_field)f), b->names->fields[f],
		        dataset_format_name(b->d->format), b->first_columns,
		        row_field_key((enum row_field)f));
	}
	return 0;
}
