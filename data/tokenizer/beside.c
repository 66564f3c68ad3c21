/* Reads the files beside tokenizer.json, and takes their tokens. */
#include "data/tokenizer/beside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/tokenizer/added_tokens.h"

enum { CONFIG_BYTES_MAX = 64 << 20 };

static const char *const special_keys[] = {
        "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
enum { SPECIAL_KEY_COUNT = sizeof(special_keys) / sizeof(special_keys[0]) };

static int read_one(struct beside_file *f, const char *dir, const char *name)
{
	int rc;

	f->path = file_join(dir, name);
	if (!f->path)
		return ERR_NOMEM;
	if (file_kind_of(f->path) == FILE_NONE)
		return 0;
	rc = json_read_file(&f->tree, f->path, CONFIG_BYTES_MAX);
	if (rc == 0 && !json_is_object(f->tree))
		rc = err_set(ERR_INPUT, "%s: %s; expected an object", f->path, json_kind_name(f->tree));
	return rc;
}

int beside_read(struct beside *b, const char *dir)
{
	struct beside_file model = {0};
	const char *type = NULL;
	int rc;

	*b = (struct beside){0};
	if (!dir)
		return 0;
	rc = read_one(&b->config, dir, "tokenizer_config.json");
	if (rc == 0)
		rc = read_one(&b->map, dir, "special_tokens_map.json");
	if (rc == 0)
		rc = read_one(&b->added, dir, "added_tokens.json");
	if (rc == 0)
		rc = read_one(&model, dir, "config.json");
	type = rc == 0 ? json_string_value(json_object_get(model.tree, "model_type")) : NULL;
	if (type && !(b->model_type = mem_strdup(type)))
		rc = ERR_NOMEM;
	json_decref(model.tree);
	mem_free(model.path);
	return rc;
}

void beside_free(struct beside *b)
{
	struct beside_file *files[] = {&b->config, &b->map, &b->added};

	for (int i = 0; i < 3; i++) {
		json_decref(files[i]->tree);
		mem_free(files[i]->path);
	}
	mem_free(b->model_type);
	*b = (struct beside){0};
}

int beside_splits_special(const struct beside *b)
{
	int on = 0, rc = 0;

	if (b->config.tree)
		rc = json_get_bool(b->config.tree, b->config.path, "split_special_tokens", &on);
	return rc < 0 ? rc : on;
}

/* ---- tokens ---- */

/* added_tokens_decoder, or NULL. */
static const json_t *decoder_of(const struct beside *b)
{
	const json_t *value = json_object_get(b->config.tree, "added_tokens_decoder");

	return json_is_null(value) ? NULL : value;
}

const json_t *beside_special(const struct beside *b, const char *key, const char **where)
{
	const json_t *value = decoder_of(b) ? NULL : json_object_get(b->map.tree, key);

	*where = b->map.path;
	if (!value || json_is_null(value)) {
		value = json_object_get(b->config.tree, key);
		*where = b->config.path;
	}
	return json_is_null(value) ? NULL : value;
}

/* What makes a token special: a key of its own, or that added_tokens.json is read beside it. */
enum { ROLE_NAMED = 1 << 0, ROLE_LEGACY = 1 << 1 };

/* A special token as files spell it: a text, or an object with its flags. One of a list in
 * tokenizer_config.json is special only if it says so. */
static int read_special(
        struct added_entry *entry, const json_t *value, const char *where, const char *key, unsigned role)
{
	int is_own = json_object_get(value, "__type") != NULL, rc;

	*entry = (struct added_entry){.id = -1, .flags = ADDED_SPECIAL, .where = where, .is_beside = 1};
	if (json_is_object(value)) {
		rc = added_entry_read(entry, value, where, key, 0);
		if (!is_own && !json_object_get(value, "normalized"))
			entry->flags &= ~(unsigned)ADDED_NORMALIZED;
		if (!is_own || role & ROLE_NAMED)
			entry->flags |= ADDED_SPECIAL;
		return rc;
	}
	if (!json_is_string(value))
		return err_set(
		        ERR_INPUT, "%s: %s is neither a string nor an object with \"content\"", where, key);
	entry->content = json_string_value(value);
	entry->len_bytes = json_string_length(value);
	return 0;
}

/* Calls `visit` with each special token: those of fixed keys, those of other keys that end in _token, and
 * the further ones. Stops at the first error. */
struct visitor {
	int (*visit)(void *user, const struct added_entry *entry, unsigned role);
	void *user;
};

static int visit_value(
        const struct visitor *v, const json_t *value, const char *where, const char *key, unsigned role)
{
	struct added_entry entry;
	int rc;

	if (json_object_get(value, "__type")) /* transformers does not know its text yet */
		role &= ~(unsigned)ROLE_LEGACY;
	rc = read_special(&entry, value, where, key, role);
	if (rc == 0 && entry.len_bytes == 0) /* transformers ignores it */
		return 0;
	return rc < 0 ? rc : v->visit(v->user, &entry, role);
}

/* Tokens of other keys, as image_token. */
static int visit_own_keys(const struct beside *b, const struct visitor *v)
{
	const char *key;
	json_t *value;
	int rc = 0;

	json_object_foreach(b->config.tree, key, value)
	{
		size_t len = strlen(key);
		int is_fixed = 0;

		for (int i = 0; i < SPECIAL_KEY_COUNT; i++)
			is_fixed |= strcmp(key, special_keys[i]) == 0;
		if (rc == 0 && !is_fixed && len > 6 && strcmp(key + len - 6, "_token") == 0 &&
		        json_is_string(value))
			rc = visit_value(v, value, b->config.path, key, ROLE_NAMED);
	}
	return rc;
}

/* A list of tokens, or an object that names them. role: of those in a list. */
static int visit_more(
        const json_t *values, const char *where, const char *key, const struct visitor *v, unsigned role)
{
	const char *name;
	json_t *value;
	size_t i;
	int rc = 0;

	if (values && !json_is_null(values) && !json_is_array(values) && !json_is_object(values))
		return err_set(ERR_INPUT, "%s: %s is %s; expected a list of tokens", where, key,
		        json_kind_name(values));
	json_array_foreach(values, i, value) if (rc == 0) rc = visit_value(v, value, where, key, role);
	json_object_foreach((json_t *)(uintptr_t)values, name, value)
	{
		if (rc == 0)
			rc = visit_value(v, value, where, name, ROLE_NAMED);
	}
	return rc;
}

static int is_filled(const json_t *value)
{
	return json_array_size(value) || json_object_size(value) ||
	       (value && !json_is_array(value) && !json_is_object(value) && !json_is_null(value));
}

/* The lists of further tokens. additional_special_tokens counts only where no file has extra_special_tokens
 * as a list; in tokenizer_config.json, that one may be empty. */
static int visit_lists(const struct beside *b, const struct visitor *v)
{
	static const char extra[] = "extra_special_tokens", additional[] = "additional_special_tokens";
	const json_t *config = b->config.tree, *map = decoder_of(b) ? NULL : b->map.tree;
	const json_t *config_extra = json_object_get(config, extra), *map_extra = json_object_get(map, extra);
	int is_named = json_object_size(config_extra) > 0;
	int has_more = json_object_get(config, additional) && !is_filled(config_extra);
	int has_list = has_more || (config_extra && !json_is_object(config_extra));
	int rc = visit_more(config_extra, b->config.path, extra, v, ROLE_LEGACY);

	if (rc == 0 && has_more)
		rc = visit_more(
		        json_object_get(config, additional), b->config.path, additional, v, ROLE_LEGACY);
	if (rc == 0)
		rc = visit_more(map_extra, b->map.path, extra, v, ROLE_LEGACY);
	if (rc < 0 || has_list || (map_extra && !json_is_object(map_extra)))
		return rc;
	if (json_object_get(map, additional))
		return visit_more(json_object_get(map, additional), b->map.path, additional, v, 0);
	return is_named ? visit_more(json_object_get(config, additional), b->config.path, additional, v, 0)
	                : 0;
}

static int visit_special(const struct beside *b, const struct visitor *v)
{
	const char *where;
	int rc = 0;

	for (int i = 0; rc == 0 && i < SPECIAL_KEY_COUNT; i++) {
		const json_t *value = beside_special(b, special_keys[i], &where);

		if (value)
			rc = visit_value(v, value, where, special_keys[i], ROLE_NAMED | ROLE_LEGACY);
	}
	if (rc == 0)
		rc = visit_own_keys(b, v);
	return rc < 0 ? rc : visit_lists(b, v);
}

/* ---- their place in the list ---- */

static int note_special(void *user, const struct added_entry *entry, unsigned role)
{
	json_t *names = user;
	json_int_t known = json_integer_value(json_object_get(names, entry->content));

	return json_object_set_new(names, entry->content, json_integer(known | role)) ? ERR_NOMEM : 0;
}

static unsigned role_of(const json_t *special, const char *content)
{
	return (unsigned)json_integer_value(json_object_get(special, content));
}

/* A special token that no list of added tokens has. If several keys hold it, the flags of the last one count.
 */
struct specials {
	struct added_list *list;
	int64_t first; /* place of the first one */
};

static int add_special(void *user, const struct added_entry *entry, unsigned role)
{
	struct specials *s = user;
	struct added_entry *known = added_list_find(s->list, entry->content, entry->len_bytes);

	(void)role;
	if (!known)
		return added_list_add(s->list, entry);
	if (known - s->list->entries >= s->first)
		known->flags = entry->flags | (known->flags & ADDED_SPECIAL);
	return 0;
}

static int compare_ids(const void *a, const void *b)
{
	const struct added_entry *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

/* Takes entries with ids, in the order of these. overrides: their flags replace those in the list. */
static int take_entries(struct added_list *list, struct added_entry *entries, size_t count, int overrides)
{
	int rc = 0;

	qsort(entries, count, sizeof(*entries), compare_ids);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		const struct added_entry *e = &entries[i];
		struct added_entry *known = added_list_find(list, e->content, e->len_bytes);

		if (i > 0 && e->id == entries[i - 1].id)
			rc = err_set(ERR_INPUT,
			        "%s: '%.80s' and '%.80s' have the same id %" PRId64 "; give each its own",
			        e->where, entries[i - 1].content, e->content, e->id);
		else if (known && known->id >= 0 && known->id != e->id)
			rc = err_set(ERR_INPUT,
			        "%s: '%.80s' has id %" PRId64 " here and %" PRId64
			        " in %s; make the files agree",
			        e->where, e->content, e->id, known->id, known->where);
		else if (!known)
			rc = added_list_add(list, e);
		else if (overrides)
			known->flags = e->flags | (list->is_model ? 0 : known->flags & ADDED_SPECIAL);
	}
	return rc;
}

static int read_id(int64_t *id, const char *key, const char *where)
{
	char *end = NULL;

	*id = strtoll(key, &end, 10);
	if (!*key || *end || *key < '0' || *key > '9' || *id > INT32_MAX)
		return err_set(ERR_INPUT, "%s: added_tokens_decoder: \"%.80s\" is not an id", where, key);
	return 0;
}

static void tell_empty(const char *where, int64_t id)
{
	log_warn("%s: the token with id %" PRId64 " has no text; it is left out, as transformers does", where,
	        id);
}

static int add_decoder(const struct beside *b, struct added_list *list, const json_t *special)
{
	json_t *decoder = (json_t *)(uintptr_t)decoder_of(b), *value;
	struct added_entry *entries = NULL;
	const char *key;
	size_t count = 0;
	int rc = 0;

	if (!json_is_object(decoder))
		return err_set(ERR_INPUT, "%s: added_tokens_decoder is %s; expected an object",
		        b->config.path, json_kind_name(decoder));
	entries = mem_alloc(json_object_size(decoder) + 1, sizeof(*entries));
	if (!entries)
		return ERR_NOMEM;
	json_object_foreach(decoder, key, value)
	{
		struct added_entry *e = &entries[count];

		e->is_beside = 1;
		if (rc == 0)
			rc = read_id(&e->id, key, b->config.path);
		if (rc == 0)
			rc = added_entry_read(e, value, b->config.path, "added_tokens_decoder", 0);
		if (rc == 0 && role_of(special, e->content) & ROLE_NAMED)
			e->flags |= ADDED_SPECIAL;
		if (rc == 0 && !e->len_bytes)
			tell_empty(b->config.path, e->id);
		count += rc == 0 && e->len_bytes > 0;
	}
	if (rc == 0)
		rc = take_entries(list, entries, count, 1);
	mem_free(entries);
	return rc;
}

/* added_tokens.json: {"token": id}. */
static int add_legacy(const struct beside *b, struct added_list *list, const json_t *special)
{
	struct added_entry *entries = mem_alloc(json_object_size(b->added.tree) + 1, sizeof(*entries));
	const char *key;
	json_t *value;
	size_t count = 0;
	unsigned role;
	int rc = entries ? 0 : ERR_NOMEM;

	json_object_foreach(b->added.tree, key, value)
	{
		if (rc == 0 && (!json_is_integer(value) || json_integer_value(value) < 0))
			rc = err_set(ERR_INPUT, "%s: '%.80s' has %s; expected an id", b->added.path, key,
			        json_kind_name(value));
		if (rc == 0 && !*key)
			tell_empty(b->added.path, json_integer_value(value));
		if (rc < 0 || !*key)
			continue;
		role = role_of(special, key);
		entries[count++] = (struct added_entry){.content = key,
		        .len_bytes = strlen(key),
		        .id = json_integer_value(value),
		        .flags = (role ? ADDED_SPECIAL : 0u) | (role & ROLE_LEGACY ? 0u : ADDED_NORMALIZED),
		        .is_beside = 1,
		        .where = b->added.path};
	}
	if (rc == 0)
		rc = take_entries(list, entries, count, 0);
	mem_free(entries);
	return rc;
}

int beside_add_tokens(const struct beside *b, struct added_list *list)
{
	struct specials specials = {.list = list};
	json_t *special = json_object();
	int rc = special ? visit_special(b, &(struct visitor){note_special, special}) : ERR_NOMEM;

	if (rc == 0)
		rc = decoder_of(b) ? add_decoder(b, list, special) : add_legacy(b, list, special);
	specials.first = list->count;
	if (rc == 0)
		rc = visit_special(b, &(struct visitor){add_special, &specials});
	json_decref(special);
	return rc;
}
