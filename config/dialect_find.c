/* Finds what a key of another trainer does here, and recognises whose file it is. */
#include "config/dialect_item.h"

#include "base/err.h"
#include "base/log.h"
#include "device/preference.h"
#include "optim/schedule.h"

#include <stdio.h>
#include <string.h>

#define REFERENCE(name) &dialect_##name,
static const struct dialect *const dialects[] = {DIALECT_LIST(REFERENCE)};
enum { DIALECT_COUNT = sizeof(dialects) / sizeof(*dialects), DIALECT_PROOF = 2 };

const char *dialect_name(const struct dialect *dialect)
{
	return dialect && dialect->name ? dialect->name : "ferry";
}

const char *dialect_place(const struct dialect_state *d)
{
	return d->file_path ? d->file_path : "command line";
}

int dialect_name_fits(const char *name, const char *list)
{
	char word[128];

	while (*list) {
		size_t len = strcspn(list, " ");
		char *star;

		snprintf(word, sizeof(word), "%.*s", (int)len, list);
		star = strchr(word, '*');
		if (!star) {
			if (config_name_equal(name, word))
				return (int)sizeof(word) + 1;
		} else {
			size_t tail = strlen(star + 1), head = (size_t)(star - word), all = strlen(name);
			char start[128];

			snprintf(start, sizeof(start), "%.*s", (int)(head < 127 ? head : 127), name);
			*star = 0;
			if (all >= head + tail && config_name_equal(start, word) &&
			        config_name_equal(name + all - tail, star + 1))
				return (int)(head + tail) + 1;
		}
		list += len;
		list += strspn(list, " ");
	}
	return 0;
}

/* ---- whose file ---- */

/* Points of a file's keys; *supports: it has some that are worth nothing alone. */
static int points_of(const struct dialect *dialect, const struct yaml_doc *doc, int *supports)
{
	int points = 0;

	*supports = 0;
	for (size_t i = 0; i < doc->count; i++)
		for (const struct dialect_marker *m = dialect->markers; m && m->names; m++)
			if (dialect_name_fits(doc->items[i].path, m->names)) {
				points += m->points;
				*supports |= !m->points;
			}
	return points;
}

/* 1 if a trainer is built on the other. */
static int builds_on(const struct dialect *dialect, const struct dialect *base)
{
	while (dialect && dialect != base)
		dialect = dialect->base;
	return dialect != NULL;
}

const struct dialect *dialect_recognize(const struct yaml_doc *doc)
{
	const struct dialect *best = NULL;
	int most = 0;

	for (int i = 0; i < DIALECT_COUNT; i++) {
		const struct dialect *d = dialects[i];
		int supports, unused, points = points_of(d, doc, &supports);

		if (points < DIALECT_PROOF &&
		        !(supports && d->base && points_of(d->base, doc, &unused) >= DIALECT_PROOF))
			continue;
		/* a trainer shares the keys of the one that it is built on, and wins over it */
		if (best ? !builds_on(best, d) && (points > most || builds_on(d, best)) : 1) {
			best = d;
			most = points;
		}
	}
	return best;
}

/* ---- what a key does ---- */

static void find_in(
        const struct dialect_key **best, int *length, const struct dialect_key *keys, const char *name)
{
	for (; keys && keys->names; keys++) {
		int fits = dialect_name_fits(name, keys->names);

		if (fits > *length) {
			*length = fits;
			*best = keys;
		}
	}
}

static const struct dialect_key *find(const char *name, enum dialect_scope scope, const struct dialect *layer)
{
	const struct dialect_key *best = NULL;
	int length = 0;

	for (const struct dialect *d = layer; d; d = d->base)
		find_in(&best, &length, scope == DIALECT_OWN_MEANING ? d->own : d->keys, name);
	for (int i = 0; scope == DIALECT_ANY && i < DIALECT_COUNT; i++)
		find_in(&best, &length, dialects[i]->keys, name);
	return best;
}

static int apply(const struct item *s, const struct dialect_key *key)
{
	char target[64];
	const char *equals;

	if (key->kind == DIALECT_KEY || key->kind == DIALECT_OR_OFF || key->kind == DIALECT_WEAK) {
		int refused = config_refuse_list(s->layer, config_key_find(key->arg), s->name, s->line);

		if (refused)
			return refused;
	}
	switch (key->kind) {
	case DIALECT_KEY:
	case DIALECT_OR_OFF:
		return item_set(s, key->arg, s->text, CONFIG_STRONG);
	case DIALECT_OR_AUTO:
		return config_name_equal(s->text, "auto") ? 0 : item_set(s, key->arg, s->text, CONFIG_STRONG);
	case DIALECT_JOIN:
		return item_add(s, key->arg);
	case DIALECT_WEAK:
		return item_set(s, key->arg, s->text, CONFIG_WEAK);
	case DIALECT_PASS:
		return item_pass(s);
	case DIALECT_ONLY:
		return !*s->text || config_name_in(s->text, key->arg) ? 0 : item_refuse(s, key->note);
	case DIALECT_METHOD:
		return !*s->text || config_name_in(s->text, key->arg) ? 0 : item_method(s, key->note);
	case DIALECT_IF:
		if (item_is_off(s->text))
			return 0;
		equals = strchr(key->arg, '=');
		snprintf(target, sizeof(target), "%.*s", (int)(equals - key->arg), key->arg);
		s->layer->seen[config_key_find(target) - config_keys] = 0; /* it wins over others */
		return item_set(s, target, equals + 1, CONFIG_STRONG);
	case DIALECT_CALL:
		return key->call(s);
	}
	return err_set(ERR_INTERNAL, "no meaning for %s", s->name);
}

/* "fsdp_config.fsdp_x", "fsdp_config.x" and "fsdp_x" are "fsdp.x". */
static const struct dialect_key *find_fsdp(
        const char *name, enum dialect_scope scope, const struct dialect *layer)
{
	static const char *const before[] = {"fsdp_config.fsdp_", "fsdp_config.", "fsdp_", "fsdp-"};
	char fsdp[160];

	for (size_t i = 0; i < sizeof(before) / sizeof(*before); i++)
		if (!strncmp(name, before[i], strlen(before[i]))) {
			snprintf(fsdp, sizeof(fsdp), "fsdp.%.140s", name + strlen(before[i]));
			return find(fsdp, scope, layer);
		}
	return NULL;
}

int dialect_knows_section(const char *name, size_t section_bytes)
{
	char section[128];

	snprintf(section, sizeof(section), " %.*s.", (int)section_bytes, name);
	if (!strncmp(section + 1, "fsdp_config.", 12))
		return 1;
	for (int i = 0; i < DIALECT_COUNT; i++)
		for (int own = 0; own < 2; own++) {
			const struct dialect_key *key = own ? dialects[i]->own : dialects[i]->keys;

			for (; key && key->names; key++)
				if (!strncmp(key->names, section + 1, strlen(section + 1)) ||
				        strstr(key->names, section))
					return 1;
		}
	return 0;
}

int dialect_set(struct dialect_state *d, struct config *c, struct config_layer *layer, const char *name,
        const char *text, int line, int is_null, enum dialect_scope scope)
{
	struct item s = {d, c, layer, name, text, line};
	const struct dialect_key *key = find_fsdp(name, scope, d->layer);
	int err;

	if (!key)
		key = find(name, scope, d->layer);
	if (!key)
		return DIALECT_UNKNOWN;
	if (is_null && key->kind != DIALECT_OR_OFF)
		return DIALECT_TAKEN;
	if (is_null)
		s.text = "off";
	err = apply(&s, key);
	return err ? err : DIALECT_TAKEN;
}

/* ---- after all settings ---- */

/* What TRL says of completions alone says nothing of chats. */
static int was_set(const struct dialect_state *d, const struct config *c, const char *key)
{
	const struct config_origin *o = &c->origins[config_key_find(key) - config_keys];

	return config_was_set(c, key) &&
	       (d->assistant_only_said || !config_name_equal(o->as, "completion_only_loss"));
}

static int counts_for(const struct dialect_default *row, const struct config *c)
{
	switch (row->rows) {
	case DIALECT_ROWS_ANY:
		break;
	case DIALECT_ROWS_TEXTS:
		return !c->preference_loss;
	case DIALECT_ROWS_PAIRS:
		return c->preference_loss != 0;
	case DIALECT_ROWS_JUDGED:
		return c->preference_loss == PREFERENCE_KTO;
	}
	return 1;
}

/* One line of the keys that nobody set and that the file's trainer would set otherwise. */
static int defaults_say(const struct dialect_state *d, const struct config *c)
{
	const struct dialect_default *row = d->file ? d->file->defaults : NULL;
	struct str list = {0};
	int err = 0;

	for (; row && row->key; row++)
		if (counts_for(row, c) && !was_set(d, c, row->key) &&
		        !(row->or_key && was_set(d, c, row->or_key)))
			str_printf(&list, "%s%s %s (%s)", list.len_bytes ? ", " : "", row->key,
			        config_text(c, row->key), row->value);
	if (config_trains(c) && list.len_bytes)
		log_warn("these keys are not set, and their defaults differ from those of %s (in brackets): "
		         "%s",
		        dialect_name(d->file), list.data);
	err = str_check(&list);
	str_free(&list);
	return err;
}

int dialect_finish(struct dialect_state *d, struct config *c)
{
	int rc = 0;

	for (int i = 0; i < DIALECT_COUNT && !rc; i++)
		if (dialects[i]->finish)
			rc = dialects[i]->finish(d, c);
	if (d->file && d->file->cosine_has_floor && c->min_lr_rate > 0 &&
	        c->lr_scheduler_type == SCHEDULE_COSINE)
		c->lr_scheduler_type = SCHEDULE_COSINE_WITH_MIN_LR;
	return rc ? rc : defaults_say(d, c);
}

void dialect_layer_begin(struct dialect_state *d)
{
	str_free(&d->passed);
	d->layer = NULL;
	d->only_loss = 0;
}
