/* What each data set is trained for. */
#include "train/inputs/data_losses.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/embedding.h"
#include "data/source/sets.h"
#include "train/inputs/data_config.h"
#include "train/inputs/sentence.h"

#include <ctype.h>
#include <string.h>

/* "sts" of "rows/sts.jsonl.gz" */
static char *name_of_path(const char *path)
{
	size_t len = strlen(path);
	const char *from;

	while (len > 1 && path[len - 1] == '/')
		len--;
	from = path + len;
	while (from > path && from[-1] != '/')
		from--;
	len -= (size_t)(from - path);
	return mem_strndup(from, strcspn(from, ".") && strcspn(from, ".") < len ? strcspn(from, ".") : len);
}

/* Names stand in keys of metrics and in lists. */
static int name_check(const struct data_losses *l, const struct config *c, int set)
{
	const char *name = l->sets[set].name;

	for (const char *at = name; *at; at++)
		if (!isalnum((unsigned char)*at) && !strchr("_-+.", *at) && (unsigned char)*at < 128)
			return err_set(ERR_INPUT,
			        "%s: data set %d is called \"%s\"; give it a name of letters, digits, _ and "
			        "-",
			        config_where(c, c->data_keys ? "data_keys" : "data"), set + 1, name);
	for (int i = 0; i < set; i++)
		if (!strcmp(l->sets[i].name, name))
			return err_set(ERR_INPUT,
			        "%s: data sets %d and %d are both called %s; give each a name of its own, as "
			        "in "
			        "{name: %s2, path: ...}",
			        config_where(c, c->data_keys ? "data_keys" : "data"), i + 1, set + 1, name,
			        name);
	return 0;
}

static int loss_open(struct data_losses *l, const struct config *c, const struct data_sets *sets, int i)
{
	struct data_loss *to = &l->sets[i];
	const char *name = i < l->keys.count ? l->keys.sets[i].name : NULL;

	to->config = i < l->keys.count ? &l->keys.sets[i].config : c;
	to->name = name ? mem_strdup(name) : name_of_path(sets->sets[i].path);
	to->where = mem_printf("%s=%s", config_where(to->config, "embedding_loss"),
	        config_said(to->config, "embedding_loss"));
	to->use = objective_of_config(to->config);
	return to->name && to->where ? name_check(l, c, i) : ERR_NOMEM;
}

static int sets_check(const struct data_losses *l, const struct config *c, const struct data_sets *sets)
{
	if (l->keys.count && l->keys.count != sets->count)
		return err_set(ERR_INPUT,
		        "%s has keys for %d data set%s, but data has %d; give each an entry, or set "
		        "data_keys= without a value, and one embedding_loss",
		        config_where(c, "data_keys"), l->keys.count, l->keys.count == 1 ? "" : "s",
		        sets->count);
	if (sets->is_weighted)
		return err_set(ERR_INPUT,
		        "%s has weights, but each step has rows of one data set, and "
		        "multi_dataset_batch_sampler says how often each comes; leave the weights out",
		        config_where(c, "data"));
	if (c->multi_dataset_batch_sampler && sets->count == 1)
		return err_set(ERR_INPUT, "%s=%s needs several data sets, and data is one; leave it out",
		        config_where(c, "multi_dataset_batch_sampler"),
		        config_said(c, "multi_dataset_batch_sampler"));
	return 0;
}

int data_losses_open(struct data_losses *l, const struct config *c)
{
	struct data_sets sets = {0};
	int rc;

	*l = (struct data_losses){0};
	if (!c->embedding_loss || !c->data || (!c->data_keys && !c->multi_dataset_batch_sampler))
		return 0;
	rc = data_keys_read(&l->keys, c);
	rc = rc ? rc : data_sets_parse(&sets, c->data);
	rc = rc ? rc : sets_check(l, c, &sets);
	l->sets = rc ? NULL : mem_alloc((size_t)sets.count, sizeof(*l->sets));
	rc = !rc && !l->sets ? ERR_NOMEM : rc;
	for (; l->count < sets.count && !rc; l->count++)
		rc = loss_open(l, c, &sets, l->count);
	data_sets_free(&sets);
	return rc;
}

void data_losses_free(struct data_losses *l)
{
	for (int i = 0; i < l->count; i++) {
		mem_free(l->sets[i].name);
		mem_free(l->sets[i].where);
	}
	mem_free(l->sets);
	data_keys_free(&l->keys);
	*l = (struct data_losses){0};
}

/* The set of data with the name. */
static int name_find(
        int *of, const struct data_losses *l, const struct config *c, const char *name, size_t len)
{
	struct str names = {0};
	int rc;

	for (int i = 0; i < l->count; i++)
		if (strlen(l->sets[i].name) == len && !strncmp(l->sets[i].name, name, len)) {
			*of = i;
			return 0;
		}
	for (int i = 0; i < l->count; i++)
		str_printf(&names, "%s%s", i ? ", " : "", l->sets[i].name);
	rc = err_set(ERR_INPUT, "%s: no data set of data is called \"%.*s\"; there are %s",
	        config_where(c, "eval_data_names"), (int)len, name, names.data ? names.data : "");
	str_free(&names);
	return rc;
}

static int names_find(int *of, const struct data_losses *l, const struct config *c, int count)
{
	const char *at = c->eval_data_names;
	int rc = 0, found = 0;

	for (; at && !rc; found++) {
		size_t len = strcspn(at, ",");

		if (found < count)
			rc = name_find(&of[found], l, c, at, len);
		for (int i = 0; i < found && found < count && !rc; i++)
			if (of[i] == of[found])
				rc = err_set(ERR_INPUT,
				        "%s has %.*s twice; join the files of one data set into a folder",
				        config_where(c, "eval_data_names"), (int)len, at);
		at = at[len] ? at + len + 1 : NULL;
	}
	if (!rc && found != count)
		rc = err_set(ERR_INPUT, "%s has %d names, but eval_data has %d data set%s",
		        config_where(c, "eval_data_names"), found, count, count == 1 ? "" : "s");
	return rc;
}

int data_losses_of(
        int of[DATA_SETS_MAX], const struct data_losses *l, const struct config *c, const char *path)
{
	struct data_sets sets = {0};
	int rc = 0;

	for (int i = 0; i < DATA_SETS_MAX; i++)
		of[i] = i < l->count ? i : 0;
	if (!l->count || path != c->eval_data)
		return 0;
	rc = data_sets_parse(&sets, path);
	if (!rc && sets.is_weighted)
		rc = err_set(ERR_INPUT,
		        "%s has weights, but each data set is evaluated by itself; leave them out",
		        config_where(c, "eval_data"));
	else if (!rc && c->eval_data_names)
		rc = names_find(of, l, c, sets.count);
	else if (!rc && sets.count != l->count)
		rc = err_set(ERR_INPUT,
		        "%s has %d data set%s and data has %d; name the set of data that each belongs to, as "
		        "in "
		        "eval_data: [{name: %s, path: ...}]",
		        config_where(c, "eval_data"), sets.count, sets.count == 1 ? "" : "s", l->count,
		        l->sets[0].name);
	data_sets_free(&sets);
	return rc;
}

int data_losses_rows(struct dataset_options *o, struct dataset_own *own, const struct data_losses *l,
        const struct config *c, const struct sentence_dir *s)
{
	int of[DATA_SETS_MAX], rc = data_losses_of(of, l, c, o->path);
	struct data_sets sets = {0};

	if (rc || !l->count)
		return rc;
	rc = data_sets_parse(&sets, o->path);
	for (int i = 0; i < sets.count && !rc; i++) {
		const struct data_loss *loss = &l->sets[of[i]];

		own[i] = (struct dataset_own){
		        embedding_rows_of(loss->config), data_config_names(loss->config)};
		own[i].texts.wanted_by = loss->where;
		sentence_texts(&own[i].texts, s);
	}
	o->own = own;
	o->own_count = sets.count;
	data_sets_free(&sets);
	return rc;
}
