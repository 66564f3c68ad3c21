/* Collects the names of classes from the data. */
#include "train/inputs/label_names.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/rows/dataset.h"
#include "data/source/files.h"
#include "data/source/records.h"
#include "data/source/sets.h"
#include "placement/options.h"

#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 10000 };

/* What is known so far: names as keys, and whether one of them is no number. */
struct found {
	json_t *names;
	int has_word, has_number;
	int is_of_words;
};

static int is_number(const char *text)
{
	char *end;

	(void)strtod(text, &end);
	return end != text && !*end;
}

static int take(struct found *f, const struct config *c, const json_t *value)
{
	const char *name = json_string_value(value);

	f->has_number |= json_is_number(value) || json_is_boolean(value);
	if (!name || !*name || json_object_get(f->names, name))
		return 0;
	f->has_word |= !is_number(name);
	if (json_object_size(f->names) == NAMES_MAX)
		return err_set(ERR_INPUT, "%s has more than %d different labels", c->data, NAMES_MAX);
	return json_object_set_new(f->names, name, json_true()) ? ERR_NOMEM : 0;
}

/* The label of a text, or the labels of words. */
static const json_t *label_of(const struct found *f, const struct config *c, const json_t *record)
{
	const char *named = c->field_label && *c->field_label ? c->field_label : NULL;
	const struct row_names names = {.fields = {[ROW_FIELD_LABEL] = named}};
	const json_t *value = NULL;

	if (named || !f->is_of_words)
		return row_field(&names, record, ROW_FIELD_LABEL, NULL);
	for (int i = 0; dataset_tag_names[i] && !value; i++)
		value = json_object_get(record, dataset_tag_names[i]);
	return value;
}

static int record_take(struct found *f, const struct config *c, const json_t *record)
{
	const json_t *value = label_of(f, c, record);
	int rc = 0;

	if (!json_is_array(value))
		return take(f, c, value);
	for (size_t i = 0; i < json_array_size(value) && !rc; i++)
		rc = take(f, c, json_array_get(value, i));
	return rc;
}

static int file_take(struct found *f, const struct config *c, const char *path)
{
	struct records *records = NULL;
	json_t *record;
	int rc;

	if (file_kind_of(path) != FILE_REGULAR) { /* a pipe is read once */
		f->has_number = 1;
		return 0;
	}
	rc = records_open(&records, path);
	while (!rc && !f->has_number && (rc = records_next(records, &record)) > 0) {
		rc = record_take(f, c, record);
		json_decref(record);
	}
	records_close(records);
	return rc;
}

static int set_take(struct found *f, const struct config *c, const char *path)
{
	const char *split = c->data_split && *c->data_split ? c->data_split : NULL;
	char *name = split ? mem_printf("%.*s", (int)strcspn(split, "["), split) : mem_strdup("train");
	struct files files = {0};
	int rc = name ? files_find(&files, path, name, split ? FILES_SPLIT_ASKED : FILES_SPLIT_DEFAULT)
	              : ERR_NOMEM;

	for (size_t i = 0; !rc && i < (size_t)files.count && !f->has_number; i++)
		rc = file_take(f, c, files.paths[i]);
	files_free(&files);
	mem_free(name);
	return rc;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int number_them(json_t **by_id, const json_t *found)
{
	size_t count = json_object_size(found), i = 0;
	const char **names = mem_alloc(count + 1, sizeof(*names)), *name;
	json_t *value;
	int rc = 0;

	*by_id = names ? json_object() : NULL;
	if (!*by_id)
		rc = ERR_NOMEM;
	json_object_foreach((json_t *)(uintptr_t)found, name, value)
	{
		if (!rc)
			names[i++] = name;
	}
	if (!rc)
		qsort(names, count, sizeof(*names), by_bytes);
	for (i = 0; i < count && !rc; i++) {
		char key[24];

		snprintf(key, sizeof(key), "%zu", i);
		rc = json_object_set_new(*by_id, key, json_string(names[i])) ? ERR_NOMEM : 0;
	}
	mem_free(names);
	return rc;
}

int label_names_read(json_t **by_id, const struct config *c)
{
	struct found f = {
	        .names = json_object(), .is_of_words = objective_of_config(c).type->labels.is_of_tokens};
	struct data_sets sets = {0};
	int rc = f.names ? 0 : ERR_NOMEM;

	*by_id = NULL;
	if (!rc && c->data && *c->data)
		rc = data_sets_parse(&sets, c->data);
	for (int i = 0; i < sets.count && !rc && !f.has_number; i++)
		rc = set_take(&f, c, sets.sets[i].path);
	if (!rc && f.has_word && !f.has_number && json_object_size(f.names) > 1)
		rc = number_them(by_id, f.names);
	data_sets_free(&sets);
	json_decref(f.names);
	return rc;
}
