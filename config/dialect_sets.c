/* Turns lists of data sets into the keys data and data_format. */
#include "config/dialect_sets.h"

#include "base/err.h"
#include "base/mem.h"

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

int dialect_sets_add(
        struct dialect_sets *s, enum dialect_set_part part, const char *name, const char *text, int line)
{
	const char *number = strpbrk(name, "0123456789");
	long set = number ? strtol(number, NULL, 10) : 0;
	int rc;

	if (set >= DIALECT_SETS_MAX)
		return err_set(ERR_INPUT, "%s: at most %d data sets; join some of them into a folder", name,
		        DIALECT_SETS_MAX);
	if (set >= s->count)
		s->count = (int)set + 1;
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

static int set_data(struct dialect_sets *s, struct config *c, struct config_layer *layer)
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
		rc = config_set(c, layer, config_key_find("data"), s->as, s->line, text.data, CONFIG_STRONG);
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

int dialect_sets_end(struct dialect_sets *s, struct config *c, struct config_layer *layer)
{
	int rc = set_data(s, c, layer);

	if (!rc)
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
	mem_free(s->weights);
	mem_free(s->as);
	*s = (struct dialect_sets){0};
}
