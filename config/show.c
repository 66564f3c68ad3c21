/* Writes values as text, for help and messages. */
#include "config/table.h"

#include "base/name.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- verbs ---- */

const char *verb_name(enum verb verb)
{
	return verb_infos[verb].name;
}

enum verb verb_find(const char *name, const char **nearest)
{
	int best = 3;

	*nearest = NULL;
	for (int v = 0; v < VERB_COUNT; v++) {
		int distance = name_distance(name, verb_infos[v].name);

		if (config_name_equal(name, verb_infos[v].name))
			return v;
		if (distance < best) {
			best = distance;
			*nearest = verb_infos[v].name;
		}
	}
	return VERB_COUNT;
}

/* ---- one key ---- */

int config_key_known(const struct config_key *key, enum verb verb)
{
	return (key->verbs >> verb & 1) ||
	       ((verb == VERB_PLAN || verb == VERB_CONFIG) && key->verbs >> VERB_TRAIN & 1);
}

const char *config_keys_verb(enum verb verb)
{
	return verb_name(verb == VERB_CONFIG ? VERB_TRAIN : verb);
}

/* Number of returned texts that stay valid at the same time, so that one message can hold several. */
enum { SHOWN_COUNT = 16, SHOWN_BYTES = 1024 };

static char *shown_next(void)
{
	static _Thread_local char shown[SHOWN_COUNT][SHOWN_BYTES];
	static _Thread_local unsigned next;

	return shown[next++ % SHOWN_COUNT];
}

static int index_of(const char *key)
{
	for (int i = 0; i < config_key_count; i++)
		if (!strcmp(config_keys[i].name, key))
			return i;
	return -1;
}

int config_was_set(const struct config *c, const char *key)
{
	int i = index_of(key);

	return i >= 0 && c->origins[i].place;
}

int config_is_default(const struct config *c, const char *key)
{
	const struct config_key *found = config_key_find(key);

	return found && !strcmp(config_text(c, key), found->default_text);
}

const char *config_where(const struct config *c, const char *key)
{
	int i = index_of(key);
	const struct config_origin *origin = i < 0 ? NULL : &c->origins[i];
	char *shown = shown_next();

	if (!origin || !origin->place)
		snprintf(shown, SHOWN_BYTES, "%s (default)", key);
	else if (*origin->place)
		snprintf(shown, SHOWN_BYTES, "%s: %s", origin->place, origin->as);
	else
		snprintf(shown, SHOWN_BYTES, "%s", origin->as);
	return shown;
}

const char *config_set_at(const struct config *c, const char *key)
{
	int i = index_of(key);

	return i < 0 ? NULL : c->origins[i].place;
}

const char *config_text(const struct config *c, const char *key)
{
	char *text = shown_next();
	struct str s = {0};
	int i = index_of(key);

	if (i >= 0)
		config_value_text(&s, c, &config_keys[i]);
	snprintf(text, SHOWN_BYTES, "%s", s.data ? s.data : "");
	str_free(&s);
	return text;
}

const char *config_said(const struct config *c, const char *key)
{
	const struct config_origin *origin = &c->origins[config_key_find(key) - config_keys];
	const char *now = config_text(c, key);
	struct str text = {0};
	char *said;

	if (!origin->value || strcmp(origin->value, now))
		return now;
	config_value_shown(&text, origin->text);
	said = shown_next();
	snprintf(said, SHOWN_BYTES, "%s", text.data ? text.data : "");
	str_free(&text);
	return said;
}

/* ---- help ---- */

static void words_list(struct str *out, const struct config_key *key, const char *separator)
{
	int first = 1;

	for (const struct config_word *w = key->words; w && w->name; w++) {
		if (w->refusal)
			continue;
		str_printf(out, "%s%s", first ? "" : separator, w->name);
		first = 0;
	}
}

/* Appends the form of a value for help. */
static void value_kind(struct str *out, const struct config_key *key)
{
	static const char *const kinds[] = {[TYPE_TEXT] = "TEXT",
	        [TYPE_PATTERN] = "REGEX",
	        [TYPE_TEXTS] = "TEXT",
	        [TYPE_FLAG] = "on|off",
	        [TYPE_COUNT] = "COUNT",
	        [TYPE_BYTES] = "SIZE",
	        [TYPE_REAL] = "NUMBER",
	        [TYPE_STEPS] = "STEPS"};

	if (key->type == TYPE_ENUM || key->type == TYPE_SET) {
		words_list(out, key, "|");
		return;
	}
	str_add(out, kinds[key->type]);
	if (key->words && key->words->name)
		str_printf(out, "|%s", key->words->name);
}

enum { HELP_COLUMNS = 80 };

/* Appends text in lines of at most `width`, all but the first indented. */
static void add_wrapped(struct str *out, const char *text, int indent, int width)
{
	int column = indent;

	while (*text) {
		int len = (int)strcspn(text, " ");

		if (column > indent && column + 1 + len > width) {
			str_printf(out, "\n%*s", indent, "");
			column = indent;
		} else if (column > indent) {
			str_add_char(out, ' ');
			column++;
		}
		str_add_bytes(out, text, (size_t)len);
		column += len;
		text += len;
		text += strspn(text, " ");
	}
	str_add_char(out, '\n');
}

static void help_key(struct str *out, const struct config_key *key)
{
	struct str kind = {0}, head = {0}, text = {0};

	value_kind(&kind, key);
	str_printf(&head, "%s%s%s   (%s)", key->name, *key->default_text ? " = " : "", key->default_text,
	        kind.data ? kind.data : "");
	if (head.len_bytes + 2 <= HELP_COLUMNS) {
		str_printf(out, "  %s\n      ", head.data ? head.data : "");
	} else { /* a line break may follow each word */
		str_free(&head);
		str_printf(&head, "%s%s%s (", key->name, *key->default_text ? " = " : "", key->default_text);
		for (const char *at = kind.data; at && *at; at++)
			if (*at == '|')
				str_add(&head, " | ");
			else
				str_add_char(&head, *at);
		str_add(&head, ")");
		str_add(out, "  ");
		add_wrapped(out, head.data ? head.data : "", 6, HELP_COLUMNS);
		str_add(out, "      ");
	}
	str_add(&text, key->meaning);
	if (key->aliases)
		str_printf(&text, " [also %s]", key->aliases);
	if (text.data)
		add_wrapped(out, text.data, 6, HELP_COLUMNS);
	str_free(&kind);
	str_free(&head);
	str_free(&text);
}

/* The verb accepts these keys so that a train command works with it in place of train. */
static void help_train_keys(struct str *out, enum verb verb)
{
	struct str names = {0};

	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];

		if (config_key_known(key, verb) && !(key->verbs >> verb & 1))
			str_printf(&names, "%s%s", names.len_bytes ? ", " : "", key->name);
	}
	str_printf(out, "\naccepted as in train%s\n  ",
	        verb == VERB_PLAN ? ", without effect on a plan" : "; ferry train --help explains them");
	add_wrapped(out, names.data ? names.data : "", 2, HELP_COLUMNS);
	out->broken |= names.broken;
	str_free(&names);
}

void config_write_help(struct str *out, enum verb verb)
{
	const struct verb_info *info = &verb_infos[verb];
	const char *group = "", *needs = info->needs;

	str_printf(out, "ferry %s %s\n\n%c%s.\n", info->name, info->usage,
	        toupper((unsigned char)*info->meaning), info->meaning + 1);
	if (*needs) {
		str_add(out, "Needed:");
		for (; *needs; needs++) {
			if (*needs == ' ' || needs == info->needs)
				str_add(out, needs == info->needs ? " " : ", ");
			if (*needs == '|')
				str_add(out, " or ");
			else if (*needs != ' ')
				str_add_char(out, *needs);
		}
		str_add(out, ".\n");
	}
	str_printf(out, "\nFor example:\n%s\nKeys, with their defaults:\n", info->examples);
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];

		if (!(key->verbs >> verb & 1))
			continue;
		if (strcmp(group, key->group)) {
			group = key->group;
			str_printf(out, "\n%s\n", group);
		}
		help_key(out, key);
	}
	if (verb == VERB_PLAN || verb == VERB_CONFIG)
		help_train_keys(out, verb);
	str_add(out, "\nSteps are a whole number, or below 1 a fraction of the run. Counts take k, M, G;\n"
	             "sizes KiB MiB GiB KB MB GB. Later settings win: default, file, command line.\n");
}
