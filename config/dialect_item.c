/* What functions of dialects do with a setting: set a key, keep it for later, refuse it, warn of it. */
#include "config/dialect_item.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "comm/launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_JSON_BYTES_MAX = 1 << 20 };

int item_set(const struct item *s, const char *key, const char *text, enum config_strength strength)
{
	const struct config_key *own = config_key_find(key);

	if (!config_key_known(own, s->c->verb) && !s->layer->file)
		return err_set(ERR_INPUT, "%s means %s, which is not a key of ferry %s; see ferry %s --help",
		        s->name, key, config_keys_verb(s->c->verb), config_keys_verb(s->c->verb));
	return config_set(s->c, s->layer, own, s->name, s->line, text, strength);
}

int item_add(const struct item *s, const char *key)
{
	const struct config_key *own = config_key_find(key);
	const char *before = config_text(s->c, key), *at = strstr(before, s->text);
	unsigned char *seen = &s->layer->seen[own - config_keys];
	char *both;
	int rc;

	if (!*seen)
		return item_set(s, key, s->text, CONFIG_STRONG);
	if (at && (at == before || at[-1] == ',') && strchr(",", at[strlen(s->text)]))
		return 0;
	both = mem_printf("%s,%s", before, s->text);
	if (!both)
		return ERR_NOMEM;
	*seen = 0;
	rc = item_set(s, key, both, CONFIG_STRONG);
	mem_free(both);
	return rc;
}

int item_is_off(const char *text)
{
	return !*text || config_name_in(text, ITEM_OFF);
}

int item_betas(const struct item *s)
{
	const char *comma = strchr(s->text, ',');
	char first[32];
	int rc;

	if (config_name_equal(s->text, "auto"))
		return 0;
	if (!comma || comma - s->text >= (int)sizeof(first))
		return item_refuse(s, "not two numbers");
	snprintf(first, sizeof(first), "%.*s", (int)(comma - s->text), s->text);
	rc = item_set(s, "adam_beta1", first + strspn(first, "[( "), CONFIG_STRONG);
	return rc ? rc : item_set(s, "adam_beta2", comma + 1 + strspn(comma + 1, " "), CONFIG_STRONG);
}

int item_member(const struct item *s, const char *name, const char *before)
{
	const char *member = s->name + strlen(before), *now;
	const struct config_key *key = config_key_find(name);
	json_t *object = NULL, *value = NULL;
	char *text = NULL;
	int rc;

	now = config_text(s->c, key->name);
	rc = *now ? json_parse(&object, s->name, now, strlen(now)) : 0;
	if (!rc && !object)
		object = json_object();
	if (!rc && config_name_in(s->text, "true false"))
		value = json_boolean(config_name_equal(s->text, "true"));
	else if (!rc && json_parse(&value, s->name, s->text, strlen(s->text)))
		value = json_string(s->text);
	if (!rc && json_object_set_new(object, member, value))
		rc = err_set(ERR_INPUT, "%s is not a JSON object", key->name);
	if (!rc)
		rc = json_write(&text, object, JSON_COMPACT);
	if (!rc) {
		s->layer->seen[key - config_keys] = 0;
		rc = item_set(s, key->name, text, CONFIG_STRONG);
	}
	json_decref(object);
	mem_free(text);
	return rc;
}

/* ---- without effect, refused, warned about ---- */

int dialect_pass(struct dialect_state *d, const char *name)
{
	str_printf(&d->passed, "%s%s", d->passed.len_bytes ? ", " : "", name);
	return str_check(&d->passed);
}

int item_pass(const struct item *s)
{
	return dialect_pass(s->d, s->name);
}

int item_refuse(const struct item *s, const char *why)
{
	struct dialect_state *d = s->d;
	struct dialect_refusal *r = d->refusals;
	int first;

	while (r < d->refusals + d->refusal_count && r->why && strcmp(r->why, why))
		r++;
	if (r == d->refusals + DIALECT_REFUSALS_MAX)
		return err_set(ERR_UNSUPPORTED, "%s=%.80s: %s", s->name, s->text, why);
	first = r == d->refusals + d->refusal_count;
	if (first) {
		d->refusal_count++;
		r->why = mem_strdup(why);
		if (!r->why)
			return ERR_NOMEM;
		config_place(&r->keys, s->layer, s->line);
	}
	str_printf(&r->keys, "%s%s=", first ? "" : ", ", s->name);
	config_value_shown(&r->keys, s->text);
	if (!first && s->layer->file)
		str_printf(&r->keys, " (line %d)", s->line);
	return str_check(&r->keys);
}

int item_method(const struct item *s, const char *does)
{
	struct str text = {0};

	if (s->d->method)
		return 0;
	config_place(&text, s->layer, s->line);
	str_printf(&text, "%s=", s->name);
	config_value_shown(&text, s->text);
	str_printf(&text, ": this %s %s%s", s->layer->file ? "file" : "command", does,
	        strchr(does, ';') ? "" : ", which ferry cannot do");
	s->d->method = str_take(&text);
	return s->d->method ? 0 : ERR_NOMEM;
}

int dialect_method_take(struct dialect_state *d)
{
	int rc = d->method ? err_set(ERR_UNSUPPORTED, "%s", d->method) : 0;

	mem_free(d->method);
	d->method = NULL;
	return rc;
}

/* ---- files ---- */

json_t *item_model_json(const struct config *c)
{
	char *path = c->model && file_kind_of(c->model) == FILE_DIR ? file_join(c->model, "config.json")
	             : c->model                                     ? mem_strdup(c->model)
	                                                            : NULL;
	json_t *root = NULL;

	if (path && file_kind_of(path) == FILE_REGULAR && json_read_file(&root, path, MODEL_JSON_BYTES_MAX))
		root = NULL;
	mem_free(path);
	return root;
}

/* The path as it stands, or beside the file that names it. */
static char *path_beside(const struct item *s)
{
	const char *slash = s->layer->file ? strrchr(s->layer->file, '/') : NULL;

	if (*s->text == '/' || !slash || file_kind_of(s->text) != FILE_NONE)
		return mem_strdup(s->text);
	return mem_printf("%.*s%s", (int)(slash + 1 - s->layer->file), s->layer->file, s->text);
}

static int item_of_file(const struct item *s)
{
	int found = dialect_set(s->d, s->c, s->layer, s->name, s->text, s->line, 0, DIALECT_OWN_MEANING);

	if (found == DIALECT_UNKNOWN)
		found = dialect_set(s->d, s->c, s->layer, s->name, s->text, s->line, 0, DIALECT_ANY);
	return found == DIALECT_UNKNOWN
	               ? item_refuse(s, "unknown key; remove it if it changes nothing in training")
	       : found < 0 ? found
	                   : 0;
}

int item_read_file(const struct item *s, const struct dialect *dialect, const char *before)
{
	const struct dialect *of_layer = s->d->layer;
	struct config_layer layer = *s->layer;
	struct yaml_doc doc = {0};
	int rc;

	if (s->d->path_count == DIALECT_PATHS_MAX)
		return item_refuse(s, "too many files name files");
	layer.file = s->d->paths[s->d->path_count] = path_beside(s);
	if (!layer.file)
		return ERR_NOMEM;
	s->d->path_count++;
	rc = yaml_read_file(&doc, layer.file);
	if (rc)
		return item_refuse(s, err_text());
	s->d->layer = dialect;
	for (size_t i = 0; i < doc.count && !rc; i++) {
		char name[300];
		struct item item = {s->d, s->c, &layer, name, doc.items[i].text, doc.items[i].line};

		snprintf(name, sizeof(name), "%s%.200s", before, doc.items[i].path);
		rc = doc.items[i].is_null ? 0 : item_of_file(&item);
	}
	s->d->layer = of_layer;
	yaml_doc_free(&doc);
	return rc;
}

/* ---- refusals ---- */

int dialect_refusal_next(struct dialect_state *d)
{
	struct dialect_refusal *r = d->refusals;
	int rc = 0;

	if (!d->refusal_count)
		return 0;
	rc = err_set(ERR_UNSUPPORTED, "%s: %s", r->keys.data, r->why);
	str_free(&r->keys);
	mem_free(r->why);
	memmove(r, r + 1, (size_t)--d->refusal_count * sizeof(*r));
	memset(&d->refusals[d->refusal_count], 0, sizeof(*r));
	return rc;
}

void item_warn(const struct item *s, const char *format, ...)
{
	struct str place = {0};
	char text[600];
	va_list args;

	config_place(&place, s->layer, s->line);
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_warn("%s%s", place.data ? place.data : "", text);
	str_free(&place);
}

/* ---- kept for later ---- */

static struct dialect_kept *slot_find(struct dialect_state *d, const char *slot)
{
	struct dialect_kept *k = d->kept;

	while (k < d->kept + DIALECT_KEPT_MAX && k->slot && strcmp(k->slot, slot))
		k++;
	return k < d->kept + DIALECT_KEPT_MAX ? k : NULL;
}

static void kept_clear(struct dialect_kept *k)
{
	mem_free(k->file);
	mem_free(k->name);
	mem_free(k->text);
	*k = (struct dialect_kept){.slot = k->slot};
}

int item_keep(const struct item *s, const char *slot)
{
	struct dialect_kept *k = slot_find(s->d, slot);

	if (!k)
		return err_set(ERR_INTERNAL, "no slot for %s", slot);
	kept_clear(k);
	*k = (struct dialect_kept){.slot = slot,
	        .file = s->layer->file ? mem_strdup(s->layer->file) : NULL,
	        .name = mem_strdup(s->name),
	        .text = mem_strdup(s->text),
	        .line = s->line};
	return k->name && k->text && (k->file || !s->layer->file) ? 0 : ERR_NOMEM;
}

const struct dialect_kept *dialect_kept(const struct dialect_state *d, const char *slot)
{
	for (int i = 0; i < DIALECT_KEPT_MAX && d->kept[i].slot; i++)
		if (!strcmp(d->kept[i].slot, slot))
			return d->kept[i].text ? &d->kept[i] : NULL;
	return NULL;
}

void dialect_forget(struct dialect_state *d, const char *slot)
{
	struct dialect_kept *k = slot_find(d, slot);

	if (k)
		kept_clear(k);
}

int kept_wins(const struct dialect_kept *kept, const struct config *c, const char *key)
{
	const char *place = config_set_at(c, key);

	return !kept->file || !place || *place;
}

int kept_set(struct config *c, const struct dialect_kept *kept, const char *key, const char *text)
{
	return config_set_meant(c, kept->file, key, kept->name, kept->line, text);
}

int kept_error(int err, const struct dialect_kept *kept, const char *what)
{
	err_set(err, "%s=%s %s", kept->name, kept->text, what);
	return kept->file ? err_note(err, "%s:%d", kept->file, kept->line) : err;
}

int item_step_rows(const struct item *s, const char *slot)
{
	char *end;
	long rows = strtol(s->text, &end, 10);

	if (*end || rows < 1 || rows > 1000000)
		return item_refuse(s, "not a number of rows");
	return item_keep(s, slot);
}

int item_processes(const struct item *s)
{
	char *end;
	long count = strtol(s->text, &end, 10);

	if (item_is_off(s->text) || !strcmp(s->text, "auto") || !strcmp(s->text, "-1"))
		return 0;
	if (*end || count < 1 || count > 1000000)
		return item_refuse(s, "must be a number of processes");
	return item_keep(s, strstr(s->name, "replicate") ? "replicas"
	                    : strstr(s->name, "shard")   ? "shards"
	                                                 : "processes");
}

int processes_say(const struct dialect_state *d, const struct config *c)
{
	const struct dialect_kept *kept[] = {
	        dialect_kept(d, "processes"), dialect_kept(d, "shards"), dialect_kept(d, "replicas")};
	long long count = 1, ranks = c->ranks > 1 ? c->ranks : 1;
	struct str text = {0};
	struct launch launch;
	int named = 0, rc;

	/* the first counts them all, the other two share them */
	for (int i = 0; i < 3 && !(i && kept[0]); i++)
		if (kept[i]) {
			if (!named)
				config_place(
				        &text, &(struct config_layer){.file = kept[i]->file}, kept[i]->line);
			str_printf(&text, "%s%s=%s", named++ ? " and " : "", kept[i]->name, kept[i]->text);
			count *= strtol(kept[i]->text, NULL, 10);
		}
	launch_read_any(&launch);
	ranks = launch.size > 1 ? launch.size : ranks;
	str_add(&text, named > 1 ? " have no effect: " : " has no effect: ");
	if (ranks == 1)
		str_printf(&text,
		        "one rank trains, with 1/%lld of the rows of a step; for %lld ranks set ranks=%lld",
		        count, count, count);
	else
		str_printf(
		        &text, "%lld ranks train, with %lld/%lld of the rows of a step", ranks, ranks, count);
	rc = str_check(&text);
	if (!rc && config_trains(c) && count > 1 && count != ranks)
		log_warn("%s", text.data);
	str_free(&text);
	return rc;
}

/* "micro_batch_size 4", as the user calls it, or nothing if it is not set. */
static void add_factor(struct str *out, const struct config *c, const char *key)
{
	const struct config_origin *o = &c->origins[config_key_find(key) - config_keys];

	if (config_was_set(c, key))
		str_printf(out, "%s%s %s", out->len_bytes ? " x " : "", o->as ? o->as : key,
		        config_text(c, key));
}

int kept_step_rows(
        struct config *c, const struct dialect_kept *kept, enum step_ranks ranks, int is_micro_known)
{
	static const char micro_key[] = "per_device_train_batch_size",
	                  steps_key[] = "gradient_accumulation_steps";
	int64_t rows = strtol(kept->text, NULL, 10), known = 1;
	int has_micro = is_micro_known || config_was_set(c, micro_key),
	    has_steps = config_was_set(c, steps_key);
	struct str factors = {0}, what = {0};
	struct launch launch;
	char text[24];
	int rc;

	launch_read(&launch);
	if (ranks == STEP_OF_RANKS)
		known = c->ranks > 1 ? c->ranks : launch.size;
	add_factor(&factors, c, micro_key);
	add_factor(&factors, c, steps_key);
	if (known > 1)
		str_printf(&factors, "%s%lld ranks", factors.len_bytes ? " x " : "", (long long)known);
	known *= (has_micro ? c->per_device_train_batch_size : 1) *
	         (has_steps ? c->gradient_accumulation_steps : 1);
	str_printf(&what, "is not %s%s; it counts the rows of a whole step; change one of them",
	        has_micro && has_steps ? "" : "a multiple of ", factors.data ? factors.data : "");
	rc = str_check(&what);
	if (!rc && (has_micro && has_steps ? known != rows : rows % known))
		rc = kept_error(ERR_INPUT, kept, what.data);
	snprintf(text, sizeof(text), "%lld", (long long)(rows / known));
	if (!rc && !(has_micro && has_steps))
		rc = kept_set(c, kept, has_micro ? steps_key : micro_key, text);
	str_free(&factors);
	str_free(&what);
	return rc;
}

void dialect_state_free(struct dialect_state *d)
{
	str_free(&d->passed);
	mem_free(d->method);
	for (int i = 0; i < d->path_count; i++)
		mem_free(d->paths[i]);
	dialect_sets_free(&d->sets);
	dialect_sets_free(&d->eval_sets);
	for (int i = 0; i < DIALECT_KEPT_MAX; i++)
		kept_clear(&d->kept[i]);
	for (int i = 0; i < d->refusal_count; i++) {
		str_free(&d->refusals[i].keys);
		mem_free(d->refusals[i].why);
	}
}
