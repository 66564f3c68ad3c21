/* Writes a configuration as YAML and JSON: a run's config.yaml, what ferry config shows, what it asks for. */
#include "config/write.h"

#include "config/reference.h"
#include "config/table.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

/* ---- a text ---- */

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

static void text_write(struct str *out, const char *value)
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

/* ---- a setting ---- */

static int is_auto(const struct config *c, int key)
{
	const struct config_origin *o = &c->origins[key];

	return o->as ? o->is_auto : !strcmp(config_keys[key].default_text, "auto");
}

/* Appends the value, or the word auto: the next call may change the key that auto follows. */
static void value_write(struct str *out, const struct config *c, int index)
{
	if (config_keys[index].type == TYPE_ENUM && is_auto(c, index))
		str_add(out, "auto");
	else
		config_value_text(out, c, &config_keys[index]);
}

/* Appends "key: value". */
static void setting_write(struct str *out, const struct config_key *key, const struct str *value)
{
	const char *text = value->data ? value->data : "";

	str_printf(out, "%s: ", key->name);
	if (config_type_is_text(key->type))
		text_write(out, text);
	else if (key->type == TYPE_SET && strchr(text, ','))
		str_printf(out, "[%s]", text);
	else
		str_add(out, text);
	out->broken |= value->broken; /* a key must not go missing because memory ran out */
}

void config_write_setting(struct str *out, const struct config *c, const char *name)
{
	const struct config_key *key = config_key_find(name);
	struct str value = {0};

	value_write(&value, c, (int)(key - config_keys));
	setting_write(out, key, &value);
	str_free(&value);
}

/* ---- config.yaml of a run ---- */

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
		value_write(&value, c, i);
		out->broken |= value.broken;
		if (!value.len_bytes && !*key->default_text)
			continue;
		if (strcmp(group, key->group)) {
			group = key->group;
			str_printf(out, "\n# %s\n", group);
		}
		setting_write(out, key, &value);
		str_add_char(out, '\n');
	}
	str_free(&value);
}

/* ---- with origins ---- */

enum { ORIGIN_COLUMN = 40 };

/* A key of a run: train has it, and not each verb. */
static int is_of_run(const struct config_key *key)
{
	return (key->verbs >> VERB_TRAIN & 1) && !(key->verbs >> VERB_TOPO & 1);
}

static int is_shown(const struct config *c, int index)
{
	const struct config_origin *o = &c->origins[index];

	return is_of_run(&config_keys[index]) && (c->show_all || o->place);
}

static const char *place_of(const struct config_origin *o)
{
	return !o->place ? "default" : *o->place ? o->place : "command line";
}

/* The name that the setting has there, if it is another one. */
static const char *other_name(const struct config_origin *o, const struct config_key *key)
{
	return o->place && !config_name_equal(o->as, key->name) ? o->as : NULL;
}

/* Appends a text that YAML takes in a comment. */
static void comment_write(struct str *out, const char *text)
{
	json_t *valid = json_of_text(text);

	out->broken |= !valid;
	for (const char *at = valid ? json_string_value(valid) : ""; *at; at++) {
		unsigned code;
		int odd = odd_character(at, &code);

		str_add_char(out, odd ? '?' : *at);
		at += odd > 1 ? odd - 1 : 0;
	}
	json_decref(valid);
}

static void origin_write(struct str *out, const struct config *c, int index)
{
	const char *as = other_name(&c->origins[index], &config_keys[index]);

	comment_write(out, place_of(&c->origins[index]));
	if (!as)
		return;
	str_add(out, " (as ");
	comment_write(out, as);
	str_add(out, ")");
}

/* Names the settings of other verbs: they stand in the file and not here. */
static void others_write(struct str *out, const struct config *c)
{
	const char *comma = "# not keys of ferry train: ";

	for (int i = 0; i < config_key_count; i++) {
		if (!c->origins[i].place || config_key_known(&config_keys[i], c->verb))
			continue;
		str_printf(out, "%s%s, ", comma, config_keys[i].name);
		origin_write(out, c, i);
		comma = "; ";
	}
	if (*comma == ';')
		str_add_char(out, '\n');
}

void config_write_origins(struct str *out, const struct config *c)
{
	const char *group = "";
	int hidden = 0;

	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		struct str value = {0};
		size_t begin = out->len_bytes;

		value_write(&value, c, i);
		out->broken |= value.broken;
		hidden += is_of_run(key) && !is_shown(c, i);
		if (is_shown(c, i) && (value.len_bytes || c->origins[i].place)) {
			if (c->show_all && strcmp(group, key->group))
				str_printf(out, "%s# %s\n", *group ? "\n" : "", key->group);
			group = key->group;
			begin = out->len_bytes;
			setting_write(out, key, &value);
			begin = out->len_bytes - begin;
			str_printf(
			        out, "%*s  # ", begin < ORIGIN_COLUMN ? (int)(ORIGIN_COLUMN - begin) : 0, "");
			origin_write(out, c, i);
			str_add_char(out, '\n');
		}
		str_free(&value);
	}
	others_write(out, c);
	if (hidden)
		str_printf(out, "# %d other keys have their defaults; to see them, add all=on\n", hidden);
}

/* A number is one in JSON too; words for numbers are texts. No value is null. */
static json_t *value_json(const struct config *c, int index)
{
	const struct config_key *key = &config_keys[index];
	const void *at = (const char *)c + key->offset;
	struct str value = {0};
	const char *text;
	json_t *made;

	value_write(&value, c, index);
	text = value.data ? value.data : "";
	if (value.broken)
		made = NULL;
	else if (key->type == TYPE_FLAG)
		made = json_boolean(*(const int *)at);
	else if (!*text)
		made = json_null();
	else if (config_type_is_text(key->type) || key->type == TYPE_ENUM || key->type == TYPE_SET ||
	         isalpha((unsigned char)*text))
		made = json_of_text(text);
	else if (key->type == TYPE_REAL || key->type == TYPE_STEPS)
		made = json_real(*(const double *)at);
	else
		made = json_integer(*(const int64_t *)at);
	str_free(&value);
	return made;
}

json_t *config_json(const struct config *c)
{
	json_t *object = json_object();
	int failed = !object;

	for (int i = 0; i < config_key_count && !failed; i++) {
		const struct config_origin *o = &c->origins[i];
		const char *as = other_name(o, &config_keys[i]);
		json_t *one;

		if (!is_shown(c, i))
			continue;
		one = json_pack("{s:o, s:o, s:o}", "value", value_json(c, i), "origin",
		        json_of_text(place_of(o)), "as", as ? json_of_text(as) : json_null());
		failed = !one || json_object_set_new(object, config_keys[i].name, one);
	}
	if (!failed)
		return object;
	json_decref(object);
	return NULL;
}
