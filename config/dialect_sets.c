/* Turns lists of data sets into the keys data and data_format. */
#include "config/dialect_sets.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int keep(char **to, const char *text)
{
	mem_free(*to);
	*to = mem_strdup(text);
	return *to ? 0 : ERR_NOMEM;
}

static int keep_name(struct dialect_sets *s, const char *name, int line)
{
	if (s->as)
		return 0;
	s->line = line;
	return keep(&s->as, name);
}

/* Where the set's number or name begins in "data.0.path" and "dataset_mixture.datasets.0.path": behind the
 * list. A name may have dots. */
static const char *set_begin(const char *name)
{
	static const char mixture[] = "dataset_mixture.";

	name += strncmp(name, mixture, strlen(mixture)) ? 0 : strlen(mixture);
	return strchr(name, '.') + 1;
}

/* The number of the set in "data.0.path", or of the one that "data.nli.path" names. */
static int set_find(int *set, struct dialect_sets *s, const char *name)
{
	const char *last = strrchr(name, '.'), *from = set_begin(name);
	int is_number;
	char *one;

	one = mem_strndup(from, last > from ? (size_t)(last - from) : 0);
	if (!one)
		return ERR_NOMEM;
	is_number = !one[strspn(one, "0123456789")];
	*set = is_number ? atoi(one) : 0;
	while (!is_number && *set < s->count && strcmp(s->names[*set] ? s->names[*set] : "", one) != 0)
		++*set;
	if (*set >= DIALECT_SETS_MAX) {
		mem_free(one);
		return err_set(ERR_INPUT, "%s: at most %d data sets; join some of them into a folder", name,
		        DIALECT_SETS_MAX);
	}
	s->count = *set >= s->count ? *set + 1 : s->count;
	if (is_number || s->names[*set])
		mem_free(one);
	else
		s->names[*set] = one;
	return 0;
}

int dialect_sets_own(struct dialect_sets *s, const char *name, const char *text, int line)
{
	int set, rc = set_find(&set, s, name);
	const char *key = strrchr(name, '.') + 1;
	char place[96];

	if (rc || keep_name(s, name, line))
		return rc ? rc : ERR_NOMEM;
	snprintf(place, sizeof(place), "data.%d.%s", set, key);
	s->own[set] = s->own[set] ? s->own[set] : json_object();
	s->lines = s->lines ? s->lines : json_object();
	return json_object_set_new(s->own[set], key, json_of_text(text)) ||
	                       json_object_set_new(s->lines, place, json_integer(line))
	               ? ERR_NOMEM
	               : 0;
}

int dialect_sets_add(
        struct dialect_sets *s, enum dialect_set_part part, const char *name, const char *text, int line)
{
	int set, rc = set_find(&set, s, name);

	if (rc)
		return rc;
	if (keep_name(s, name, line))
		return ERR_NOMEM;
	s->parts[set][part].line = line;
	rc = keep(&s->parts[set][part].text, text);
	return rc ? rc : keep(&s->parts[set][part].name, name);
}

int dialect_sets_weights(struct dialect_sets *s, const char *name, const char *text, int line)
{
	if (keep_name(s, name, line))
		return ERR_NOMEM;
	return keep(&s->weights, text);
}

/* A path that names a loader of the datasets library says nothing beside its files. */
static const char *path_of(const struct dialect_set parts[DIALECT_SET_PARTS])
{
	return parts[DIALECT_SET_FILES].text ? parts[DIALECT_SET_FILES].text : parts[DIALECT_SET_PATH].text;
}

static int set_data(struct dialect_sets *s, const char *data, struct config *c, struct config_layer *layer)
{
	struct str text = {0};
	int rc = 0;

	for (int i = 0; i < s->count && !rc; i++) {
		const char *path = path_of(s->parts[i]), *weight = s->parts[i][DIALECT_SET_WEIGHT].text;

		if (!path)
			rc = err_set(ERR_INPUT, "%s:%d: data set %d has no path",
			        layer->file ? layer->file : "", s->line, i + 1);
		else
			str_printf(&text, "%s%s%s%s", i ? "," : "", path, weight ? ":" : "",
			        weight ? weight : "");
	}
	if (!rc)
		rc = str_check(&text);
	if (!rc && s->count)
		rc = config_set(c, layer, config_key_find(data), s->as, s->line, text.data, CONFIG_STRONG);
	str_free(&text);
	return rc;
}

/* Every type must be one that ferry knows. If types differ, data_format=auto reads the format from each set's
 * rows. */
static int set_types(struct dialect_sets *s, struct config *c, struct config_layer *layer)
{
	const struct config_key *key = config_key_find("data_format");
	const char *first = NULL;
	int differ = 0, rc = 0;

	for (int i = 0; i < s->count && !rc; i++) {
		const struct dialect_set *type = &s->parts[i][DIALECT_SET_TYPE];

		differ |= i > 0 && strcmp(type->text ? type->text : "", first ? first : "");
		first = i ? first : type->text;
		layer->seen[key - config_keys] = 0;
		if (type->text)
			rc = config_set(c, layer, key, type->name, type->line, type->text, CONFIG_STRONG);
	}
	if (rc || !differ)
		return rc;
	layer->seen[key - config_keys] = 0;
	return config_set(c, layer, key, s->as, s->line, "auto", CONFIG_STRONG);
}

static size_t next(const char **list)
{
	*list += strspn(*list, " ,");
	return strcspn(*list, ",");
}

/* Joins the names "a,b" and the weights "0.7,0.3" into data=a:0.7,b:0.3. */
static int set_weights(struct dialect_sets *s, struct config *c, struct config_layer *layer)
{
	const struct config_key *key = config_key_find("data");
	const char *name = c->data ? c->data : "", *weight = s->weights;
	struct str text = {0};
	size_t name_len, weight_len;
	int rc = 0;

	do {
		name_len = next(&name);
		weight_len = next(&weight);
		if (!name_len != !weight_len) {
			rc = err_set(ERR_INPUT, "%s:%d: %s=%s must have one weight for each data set of %s",
			        layer->file ? layer->file : "", s->line, s->as, s->weights,
			        c->data ? c->data : "data");
		} else if (name_len) {
			str_printf(&text, "%s%.*s:%.*s", text.len_bytes ? "," : "", (int)name_len, name,
			        (int)weight_len, weight);
		}
		name += name_len;
		weight += weight_len;
	} while (!rc && name_len);
	if (!rc)
		rc = str_check(&text);
	layer->seen[key - config_keys] = 0;
	if (!rc)
		rc = config_set(c, layer, key, s->as, s->line, text.data ? text.data : "", CONFIG_STRONG);
	str_free(&text);
	return rc;
}

/* A set in a mapping has its name there. */
static int names_take(struct dialect_sets *s)
{
	for (int i = 0; i < s->count; i++) {
		if (!s->names[i])
			continue;
		s->own[i] = s->own[i] ? s->own[i] : json_object();
		if (json_object_set_new(s->own[i], "name", json_of_text(s->names[i])))
			return ERR_NOMEM;
	}
	return 0;
}

static int set_own(struct dialect_sets *s, struct config *c, struct config_layer *layer)
{
	json_t *list = json_array();
	char *text = NULL;
	int rc = 0, has_own = 0;

	for (int i = 0; i < s->count && !rc; i++) {
		has_own |= s->own[i] != NULL;
		rc = json_array_append_new(list, s->own[i] ? json_incref(s->own[i]) : json_object())
		             ? ERR_NOMEM
		             : 0;
	}
	if (!rc && has_own)
		rc = json_write(&text, list, JSON_COMPACT);
	if (!rc && has_own)
		rc = config_set(c, layer, config_key_find("data_keys"), s->as, s->line, text, CONFIG_STRONG);
	if (!rc && has_own) {
		json_decref(c->data_lines);
		c->data_lines = json_incref(s->lines);
	}
	mem_free(text);
	json_decref(list);
	return rc;
}

/* The names of sets to evaluate on, each or none. */
static int set_names(struct dialect_sets *s, struct config *c, struct config_layer *layer)
{
	struct str text = {0};
	int rc = 0, named = 0;

	for (int i = 0; i < s->count; i++) {
		const char *name = json_string_value(json_object_get(s->own[i], "name"));

		named += name != NULL;
		str_printf(&text, "%s%s", i ? "," : "", name ? name : "");
	}
	if (named && named < s->count)
		rc = err_set(ERR_INPUT,
		        "%s:%d: some data sets of eval_data have a name and some have none; give each the "
		        "name of one of data",
		        layer->file ? layer->file : "", s->line);
	if (!rc && named)
		rc = str_check(&text);
	if (!rc && named)
		rc = config_set(c, layer, config_key_find("eval_data_names"), s->as, s->line, text.data,
		        CONFIG_STRONG);
	str_free(&text);
	return rc;
}

int dialect_sets_end(struct dialect_sets *s, const char *data, struct config *c, struct config_layer *layer)
{
	int evaluates = !strcmp(data, "eval_data"), rc = set_data(s, data, c, layer);

	if (!rc)
		rc = names_take(s);
	if (!rc)
		rc = evaluates ? set_names(s, c, layer) : set_own(s, c, layer);
	if (!rc && !evaluates)
		rc = set_types(s, c, layer);
	if (!rc && s->weights)
		rc = set_weights(s, c, layer);
	dialect_sets_free(s);
	return rc;
}

void dialect_sets_free(struct dialect_sets *s)
{
	for (int i = 0; i < s->count; i++)
		for (int part = 0; part < DIALECT_SET_PARTS; part++) {
			mem_free(s->parts[i][part].text);
			mem_free(s->parts[i][part].name);
		}
	for (int i = 0; i < s->count; i++) {
		json_decref(s->own[i]);
		mem_free(s->names[i]);
	}
	json_decref(s->lines);
	mem_free(s->weights);
	mem_free(s->as);
	*s = (struct dialect_sets){0};
}
