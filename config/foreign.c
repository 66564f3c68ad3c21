/* Keys of other tools, and what they become here. */
#include "config/foreign_item.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a foreign key does. With every kind but FOREIGN_NULL an empty value (null) sets nothing. */
enum foreign_kind {
	FOREIGN_KEY,  /* `arg` under another name */
	FOREIGN_LIST, /* the same, of several data sets: joined by commas */
	FOREIGN_WEAK, /* the same, but a stronger spelling beside it wins */
	FOREIGN_PASS, /* changes nothing here */
	FOREIGN_ONLY, /* changes nothing while it has one of the values in `arg`, else refused with `note` */
	FOREIGN_IF,   /* sets `arg` ("key=value") when on */
	FOREIGN_NULL, /* `arg`; null switches it off instead of leaving its default */
	FOREIGN_CALL, /* has a function: foreign_calls[] of the same name */
};

struct foreign_key {
	const char *names; /* separated by blanks; * stands for any text */
	enum foreign_kind kind;
	const char *arg, *note;
	unsigned dialects; /* bits; 0 = any. Rows of a dialect are looked up before ferry's own keys. */
};

#define OFF ITEM_OFF
#define NOT_QUANTIZED ITEM_NOT_QUANTIZED
#define BY_NAME ITEM_BY_NAME
#define FREEZE_EXAMPLE ITEM_FREEZE_EXAMPLE
#define TRAINABLE_EXAMPLE ITEM_TRAINABLE_EXAMPLE
#define DEEPSPEED FOREIGN_DEEPSPEED
#define AXOLOTL (1u << DIALECT_AXOLOTL)
#define TORCHTUNE (1u << DIALECT_TORCHTUNE)
#define LLAMA_FACTORY (1u << DIALECT_LLAMA_FACTORY)
#define TRANSFORMERS (1u << DIALECT_TRANSFORMERS | 1u << DIALECT_TRL)

static const struct foreign_key foreign_keys[] = {
#include "config/foreign_keys.inc"
};

/* ---- one setting ---- */

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

int foreign_pass(struct foreign *f, const char *name)
{
	str_printf(&f->passed, "%s%s", f->passed.len_bytes ? ", " : "", name);
	return str_check(&f->passed);
}

int item_pass(const struct item *s)
{
	return foreign_pass(s->f, s->name);
}

int item_refuse(const struct item *s, const char *why)
{
	struct foreign *f = s->f;
	struct foreign_refusal *r = f->refusals;
	int first;

	while (r < f->refusals + f->refusal_count && r->why && strcmp(r->why, why))
		r++;
	if (r == f->refusals + FOREIGN_REFUSALS_MAX)
		return err_set(ERR_UNSUPPORTED, "%s=%.80s: %s", s->name, s->text, why);
	first = r == f->refusals + f->refusal_count;
	if (first) {
		f->refusal_count++;
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

int foreign_refusal_next(struct foreign *f)
{
	struct foreign_refusal *r = f->refusals;
	int rc = 0;

	if (!f->refusal_count)
		return 0;
	rc = err_set(ERR_UNSUPPORTED, "%s: %s", r->keys.data, r->why);
	str_free(&r->keys);
	mem_free(r->why);
	memmove(r, r + 1, (size_t)--f->refusal_count * sizeof(*r));
	memset(&f->refusals[f->refusal_count], 0, sizeof(*r));
	return rc;
}

int item_is_off(const char *text)
{
	return !*text || config_name_in(text, OFF);
}

static int item_apply(const struct item *s, const struct foreign_key *key, const char *name)
{
	char target[64];
	const char *equals;

	switch (key->kind) {
	case FOREIGN_KEY:
	case FOREIGN_NULL:
		return item_set(s, key->arg, s->text, CONFIG_STRONG);
	case FOREIGN_LIST:
		return item_add(s, key->arg);
	case FOREIGN_WEAK:
		return item_set(s, key->arg, s->text, CONFIG_WEAK);
	case FOREIGN_PASS:
		return item_pass(s);
	case FOREIGN_ONLY:
		return !*s->text || config_name_in(s->text, key->arg) ? 0 : item_refuse(s, key->note);
	case FOREIGN_IF:
		if (item_is_off(s->text))
			return 0;
		equals = strchr(key->arg, '=');
		snprintf(target, sizeof(target), "%.*s", (int)(equals - key->arg), key->arg);
		s->layer->seen[config_key_find(target) - config_keys] = 0; /* it wins over others */
		return item_set(s, target, equals + 1, CONFIG_STRONG);
	case FOREIGN_CALL:
		return item_call(s, name);
	}
	return err_set(ERR_INTERNAL, "no meaning for %s", s->name);
}

static const struct foreign_key *find(const char *name, enum foreign_scope scope, enum dialect dialect)
{
	for (size_t i = 0; i < sizeof(foreign_keys) / sizeof(*foreign_keys); i++) {
		const struct foreign_key *key = &foreign_keys[i];

		if (scope == FOREIGN_OWN_MEANING ? !(key->dialects >> dialect & 1) : key->dialects != 0)
			continue;
		if (foreign_name_matches(name, key->names))
			return key;
	}
	return NULL;
}

int foreign_set(struct foreign *f, struct config *c, struct config_layer *layer, const char *name,
        const char *text, int line, int is_null, enum foreign_scope scope)
{
	struct item s = {f, c, layer, name, text, line};
	const struct foreign_key *key = NULL;
	const char *rest = NULL;
	char fsdp[160];
	int err;

	if (!strncmp(name, "fsdp_config.fsdp_", 17))
		rest = name + 17;
	else if (!strncmp(name, "fsdp_config.", 12))
		rest = name + 12;
	else if (!strncmp(name, "fsdp_", 5) || !strncmp(name, "fsdp-", 5))
		rest = name + 5;
	if (rest) {
		snprintf(fsdp, sizeof(fsdp), "fsdp.%.140s", rest);
		key = find(fsdp, scope, f->dialect);
	}
	if (key)
		name = fsdp;
	else
		key = find(name, scope, f->dialect);
	if (!key)
		return FOREIGN_UNKNOWN;
	if (is_null && key->kind != FOREIGN_NULL)
		return FOREIGN_TAKEN;
	if (is_null)
		s.text = "off";
	err = item_apply(&s, key, name);
	return err ? err : FOREIGN_TAKEN;
}

void foreign_layer_begin(struct foreign *f)
{
	str_free(&f->passed);
	f->dialect = DIALECT_FERRY;
	f->only_loss = 0;
}

void foreign_free(struct foreign *f)
{
	str_free(&f->passed);
	foreign_sets_free(&f->sets);
	foreign_lora_free(&f->lora);
	foreign_preference_free(&f->preference);
	item_kept_free(&f->evaluates);
	item_kept_free(&f->data_seed);
	item_kept_free(&f->tokenizer_path);
	item_kept_free(&f->pretrains);
	item_kept_free(&f->zero);
	item_kept_free(&f->total_batch_item);
	for (int i = 0; i < FOREIGN_EVENTS; i++) {
		item_kept_free(&f->strategy[i].item);
		item_kept_free(&f->per_epoch[i]);
	}
	for (int i = 0; i < f->refusal_count; i++) {
		str_free(&f->refusals[i].keys);
		mem_free(f->refusals[i].why);
	}
}
