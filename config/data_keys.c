/* Configurations of data sets that have keys of their own. */
#include "config/data_keys.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "config/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Copies every value and where it was set. */
static int config_copy(struct config *to, const struct config *from)
{
	int rc = 0;

	*to = *from;
	to->data_lines = NULL;
	to->origins = mem_alloc((size_t)config_key_count, sizeof(*to->origins));
	rc = to->origins ? 0 : ERR_NOMEM;
	for (int i = 0; i < config_key_count; i++) {
		const struct config_origin *o = &from->origins[i];
		char **text = (char **)(void *)((char *)to + config_keys[i].offset);

		if (config_type_is_text(config_keys[i].type) && *text && !(*text = mem_strdup(*text)))
			rc = ERR_NOMEM;
		if (!to->origins || !o->as)
			continue;
		to->origins[i] = (struct config_origin){.place = mem_strdup(o->place),
		        .as = mem_strdup(o->as),
		        .text = mem_strdup(o->text),
		        .value = mem_strdup(o->value),
		        .shown = o->shown,
		        .refusal = o->refusal,
		        .is_auto = o->is_auto};
		if (!to->origins[i].place || !to->origins[i].as || !to->origins[i].text ||
		        !to->origins[i].value)
			rc = ERR_NOMEM;
	}
	return rc;
}

/* The name and the place that a set's key has in the file. */
struct own_place {
	char as[96], file[512];
	int line;
};

static struct own_place place_of(const struct config *c, int set, const char *key)
{
	const char *at = config_set_at(c, "data_keys"), *colon = at ? strrchr(at, ':') : NULL;
	struct own_place p = {0};

	snprintf(p.as, sizeof(p.as), "data.%d.%s", set, key);
	if (!colon)
		return p;
	snprintf(p.file, sizeof(p.file), "%.*s", (int)(colon - at), at);
	p.line = (int)json_integer_value(json_object_get(c->data_lines, p.as));
	p.line = p.line ? p.line : atoi(colon + 1);
	return p;
}

static int key_set(struct config *to, unsigned char *seen, const struct config *c, int set, const char *name,
        const json_t *value)
{
	const struct config_key *key = config_key_find(name);
	const struct own_place p = place_of(c, set, name);
	struct config_layer layer = {.file = *p.file ? p.file : NULL, .seen = seen};
	struct str where = {0};
	char *text = NULL;
	int rc;

	if (key && key->verbs & VERB_SETTING_OF_SET && !json_is_object(value) && !json_is_null(value)) {
		rc = json_is_string(value)
		             ? 0
		             : json_write(&text, value,
		                       JSON_COMPACT | JSON_ENCODE_ANY); /* as on the command line */
		if (!rc)
			rc = config_set(to, &layer, key, p.as, p.line, text ? text : json_string_value(value),
			        CONFIG_STRONG);
		mem_free(text);
		return rc;
	}
	config_place(&where, &layer, p.line);
	if (!key)
		rc = err_set(
		        ERR_INPUT, "%s%s: unknown key \"%.100s\"", where.data ? where.data : "", p.as, name);
	else if (!(key->verbs & VERB_SETTING_OF_SET))
		rc = err_set(ERR_INPUT, "%s%s: %s holds for all data sets; set it outside of data",
		        where.data ? where.data : "", p.as, key->name);
	else
		rc = err_set(ERR_INPUT, "%s%s: the value is %s; expected a text or a number",
		        where.data ? where.data : "", p.as, json_kind_name(value));
	str_free(&where);
	return rc;
}

static int set_read(struct data_keys *k, const struct config *c, int set, const json_t *own)
{
	unsigned char *seen = mem_alloc((size_t)config_key_count, 1);
	struct config *to = &k->sets[set].config;
	const json_t *value;
	const char *name;
	int rc = seen ? config_copy(to, c) : ERR_NOMEM;

	json_object_foreach((json_t *)(uintptr_t)own, name, value)
	{
		if (rc)
			break;
		if (strcmp(name, "name") != 0)
			rc = key_set(to, seen, c, set, name, value);
		else if (!json_is_string(value) || !json_string_length(value))
			rc = err_set(
			        ERR_INPUT, "%s: data.%d.name is no text", config_where(c, "data_keys"), set);
		else if (!(k->sets[set].name = mem_strdup(json_string_value(value))))
			rc = ERR_NOMEM;
	}
	mem_free(seen);
	return rc;
}

int data_keys_read(struct data_keys *k, const struct config *c)
{
	const char *text = c->data_keys;
	json_t *list = NULL;
	int rc, count;

	*k = (struct data_keys){0};
	if (!text)
		return 0;
	rc = json_parse_exact(&list, "data_keys", text, strlen(text), 1);
	if (!rc && !json_is_array(list))
		rc = err_set(ERR_INPUT, "%s must be a list of objects, one for each set of data",
		        config_where(c, "data_keys"));
	count = rc ? 0 : (int)json_array_size(list);
	k->sets = mem_alloc((size_t)count + 1, sizeof(*k->sets));
	rc = !rc && !k->sets ? ERR_NOMEM : rc;
	for (int i = 0; i < count && !rc; i++) {
		const json_t *own = json_array_get(list, (size_t)i);

		k->count++;
		rc = json_is_map(own) ? set_read(k, c, i, own)
		                      : err_set(ERR_INPUT, "%s: entry %d is %s; expected an object",
		                                config_where(c, "data_keys"), i, json_kind_name(own));
	}
	json_decref(list);
	return rc;
}

void data_keys_free(struct data_keys *k)
{
	for (int i = 0; i < k->count; i++) {
		config_free(&k->sets[i].config);
		mem_free(k->sets[i].name);
	}
	mem_free(k->sets);
	*k = (struct data_keys){0};
}

int data_keys_resolve(struct config *c)
{
	struct data_keys k;
	int loss = (int)(config_key_find("embedding_loss") - config_keys), without = -1,
	    rc = data_keys_read(&k, c);

	for (int i = 0; i < k.count && !rc; i++) /* a refused loss is refused later, by its name */
		if (!k.sets[i].config.embedding_loss && !k.sets[i].config.origins[loss].refusal)
			without = i;
	if (!rc && k.count && !c->embedding_loss && without < 0) {
		const struct config *first = &k.sets[0].config;
		struct own_place p = place_of(c, 0, "embedding_loss");

		rc = config_set_meant(c, *p.file ? p.file : NULL, "embedding_loss", p.as, p.line,
		        config_said(first, "embedding_loss"));
	} else if (!rc && without >= 0) {
		rc = err_set(ERR_INPUT,
		        "%s: data set %d%s%s has no embedding_loss; keys of single data sets are for "
		        "embedders: set "
		        "embedding_loss in each, or outside of data",
		        config_where(c, "data_keys"), without + 1, k.sets[without].name ? " " : "",
		        k.sets[without].name ? k.sets[without].name : "");
	}
	data_keys_free(&k);
	return rc == ERR_INPUT && without < 0 ? 0 : rc; /* config_check says it */
}
