/* Writes values as text, for config.yaml, help and messages. */
#include "config/reference.h"
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
	return (key->verbs >> verb & 1) || (verb == VERB_PLAN && key->verbs >> VERB_TRAIN & 1);
}

/* Number of returned texts that stay valid at the same time, so that one message can hold several. */
enum { SHOWN_COUNT = 8, SHOWN_BYTES = 1024 };

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

/* ---- config.yaml ---- */

/* Number of bytes of a character at `text` that YAML cannot hold as it is or takes for a line end; 0 for any
 * other. Besides ASCII control characters these are U+0080 to U+009F, U+2028, U+2029, U+FEFF, U+FFFE and
 * U+FFFF. */
static int odd_character(const char *text, unsigned *code)
{
	const unsigned char *c = (const unsigned char *)text;

	if (c[0] < ' ' || c[0] == 127) {
		*code = c[0];
		return 1;
	}
	if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) {
		*code = c[1];
		return 2;
	}
	if (c[0] < 0xe2 || c[0] > 0xef || !c[1] || !c[2])
		return 0;
	*code = (c[0] & 15u) << 12 | (c[1] & 63u) << 6 | (c[2] & 63u);
	return *code == 0x2028 || *code == 0x2029 || *code == 0xfeff || *code >= 0xfffe ? 3 : 0;
}

/* Whether YAML or ferry would read the text as something else if it had no quotes. */
static int wants_quotes(const char *text)
{
	size_t len = strlen(text);

	if (!len || strchr(" -?:,[]{}#&*!|>'\"%@`~", text[0]) || text[len - 1] == ' ' || text[len - 1] == ':')
		return 1;
	if (strstr(text, ": ") || strstr(text, " #") || config_name_equal(text, "null"))
		return 1;
	for (; *text; text++) {
		unsigned code;

		if (odd_character(text, &code))
			return 1;
	}
	return 0;
}

static void yaml_text(struct str *out, const char *value)
{
	struct str escaped = {0};
	const char *text;

	reference_escape(&escaped, value);
	out->broken |= escaped.broken;
	text = escaped.data ? escaped.data : "";
	if (!wants_quotes(text)) {
		str_add(out, text);
		str_free(&escaped);
		return;
	}
	str_add_char(out, '"');
	for (; *text; text++) {
		unsigned code;
		int odd = odd_character(text, &code);

		if (*text == '"' || *text == '\\')
			str_printf(out, "\\%c", *text);
		else if (*text == '\n')
			str_add(out, "\\n");
		else if (odd)
			str_printf(out, "\\u%04x", code);
		else
			str_add_char(out, *text);
		text += odd > 1 ? odd - 1 : 0;
	}
	str_add_char(out, '"');
	str_free(&escaped);
}

static int is_auto(const struct config *c, int key)
{
	const struct config_origin *o = &c->origins[key];

	return o->as ? o->is_auto : !strcmp(config_keys[key].default_text, "auto");
}

void config_write_yaml(struct str *out, const struct config *c)
{
	const char *group = "";
	struct str value = {0};

	str_printf(out,
	        "# Resolved configuration. To repeat the run: ferry %s THIS_FILE output_dir=ANOTHER\n",
	        verb_name(c->verb));
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];

		if (!(key->verbs >> c->verb & 1) || (key->verbs & VERB_SETTING_ONCE))
			continue;
		str_free(&value);
		if (key->type == TYPE_ENUM && is_auto(c, i))
			str_add(&value, "auto"); /* the next call may change the key that auto follows */
		else
			config_value_text(&value, c, key);
		out->broken |= value.broken; /* a key must not go missing because memory ran out */
		if (!value.len_bytes)
			continue;
		if (strcmp(group, key->group)) {
			group = key->group;
			str_printf(out, "\n# %s\n", group);
		}
		str_printf(out, "%s: ", key->name);
		if (config_type_is_text(key->type))
			yaml_text(out, value.data);
		else if (key->type == TYPE_SET && strchr(value.data, ','))
			str_printf(out, "[%s]", value.data);
		else
			str_add(out, value.data);
		str_add_char(out, '\n');
	}
	str_free(&value);
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
	struct str kind = {0}, text = {0};

	value_kind(&kind, key);
	str_printf(out, "  %s", key->name);
	if (*key->default_text)
		str_printf(out, " = %s", key->default_text);
	str_printf(out, "   (%s)\n      ", kind.data);
	str_add(&text, key->meaning);
	if (key->aliases)
		str_printf(&text, " [also %s]", key->aliases);
	if (text.data)
		add_wrapped(out, text.data, 6, 100);
	str_free(&kind);
	str_free(&text);
}

/* plan accepts these keys so that a train command works with plan in place of train. */
static void help_train_keys(struct str *out)
{
	struct str names = {0};

	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];

		if (config_key_known(key, VERB_PLAN) && !(key->verbs >> VERB_PLAN & 1))
			str_printf(&names, "%s%s", names.len_bytes ? ", " : "", key->name);
	}
	str_add(out, "\naccepted as in train, without effect on a plan\n  ");
	add_wrapped(out, names.data ? names.data : "", 2, 100);
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
	if (verb == VERB_PLAN)
		help_train_keys(out);
	str_add(out, "\nSteps are a whole number, or below 1 a fraction of the run. Counts take k, M, G; "
	             "sizes KiB "
	             "MiB GiB KB MB GB.\nLater settings win: default, file, command line.\n");
}
