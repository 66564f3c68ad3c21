/* Parses the list of data sets that a user names. */
#include "data/source/sets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

static int is_one(const char *spec)
{
	return strcmp(spec, "-") == 0 || !file_is_no_name(spec);
}

/* 1 if the text after a colon is a number, and so a weight; it may be an invalid one, such as -1. */
static int is_number(const char *text, double *value)
{
	char *end;

	if (!*text || !strchr("+-.0123456789", *text))
		return 0;
	*value = strtod(text, &end);
	return *end == 0;
}

/* Adds one member of the list: its path, and its weight if it has one. */
static int add(struct data_sets *s, const char *text, size_t len)
{
	struct data_set *set = &s->sets[s->count];
	double weight;
	char *colon;

	while (len && *text == ' ')
		text++, len--;
	while (len && text[len - 1] == ' ')
		len--;
	if (s->count == DATA_SETS_MAX)
		return err_set(ERR_INPUT,
		        "more than %d data sets in one list; join some of them into a folder", DATA_SETS_MAX);
	set->path = mem_strndup(text, len);
	if (!set->path)
		return ERR_NOMEM;
	s->count++;
	if (is_one(set->path))
		return 0;
	colon = strrchr(set->path, ':');
	if (colon && is_number(colon + 1, &weight)) {
		if (!(weight > 0) || !isfinite(weight))
			return err_set(ERR_INPUT,
			        "%s: the weight after the colon must be a number above 0; to leave a set "
			        "out, remove it from the list",
			        set->path);
		*colon = 0;
		set->weight = weight;
		set->weight_text = mem_strdup(colon + 1);
		if (!set->weight_text)
			return ERR_NOMEM;
	}
	if (!*set->path)
		return err_set(ERR_INPUT,
		        "a data set has no name; write sets as a.jsonl,b.jsonl or with weights as "
		        "a.jsonl:0.7,b.jsonl:0.3");
	return 0;
}

static int check_weights(const struct data_sets *s)
{
	int weighted = 0;

	for (int i = 0; i < s->count; i++)
		weighted += s->sets[i].weight > 0;
	if (weighted && s->count == 1)
		return err_set(ERR_INPUT,
		        "%s:%s: a weight is only for several data sets, but there is one; leave it out",
		        s->sets[0].path, s->sets[0].weight_text);
	for (int i = 0; weighted && i < s->count; i++)
		if (!(s->sets[i].weight > 0))
			return err_set(ERR_INPUT,
			        "%s has no weight, but other data sets have one; give each a weight, as in "
			        "%s:1",
			        s->sets[i].path, s->sets[i].path);
	return 0;
}

int data_sets_parse(struct data_sets *s, const char *spec)
{
	int rc = 0;

	*s = (struct data_sets){0};
	if (is_one(spec))
		return add(s, spec, strlen(spec));
	for (;;) {
		size_t len = strcspn(spec, ",");

		rc = add(s, spec, len);
		if (rc || !spec[len])
			break;
		spec += len + 1;
	}
	if (!rc)
		rc = check_weights(s);
	s->is_weighted = !rc && s->sets[0].weight > 0;
	return rc;
}

void data_sets_free(struct data_sets *s)
{
	for (int i = 0; i < s->count; i++) {
		mem_free(s->sets[i].path);
		mem_free(s->sets[i].weight_text);
	}
	*s = (struct data_sets){0};
}

char *data_sets_join(const struct data_sets *s)
{
	struct str out = {0};

	for (int i = 0; i < s->count; i++)
		str_printf(&out, "%s%s%s%s", i ? "," : "", s->sets[i].path, s->sets[i].weight_text ? ":" : "",
		        s->sets[i].weight_text ? s->sets[i].weight_text : "");
	if (str_check(&out)) {
		str_free(&out);
		return NULL;
	}
	return str_take(&out);
}
