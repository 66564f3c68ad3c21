#include "cli/config_table.h"

#include "base/err.h"
#include "base/mem.h"

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
		int distance = config_name_distance(name, verb_infos[v].name);

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

static _Thread_local char shown[1024];

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

const char *config_where(const struct config *c, const char *key)
{
	int i = index_of(key);
	const struct config_origin *origin = i < 0 ? NULL : &c->origins[i];

	if (!origin || !origin->place)
		snprintf(shown, sizeof(shown), "%s (default)", key);
	else if (*origin->place)
		snprintf(shown, sizeof(shown), "%s: %s", origin->place, origin->as);
	else
		snprintf(shown, sizeof(shown), "%s", origin->as);
	return shown;
}

const char *config_text(const struct config *c, const char *key)
{
	static _Thread_local char text[1024];
	struct str s = {0};
	int i = index_of(key);

	if (i >= 0)
		config_value_text(&s, c, &config_keys[i]);
	snprintf(text, sizeof(text), "%s", s.data ? s.data : "");
	str_free(&s);
	return text;
}

/* ---- config.yaml ---- */

/* Text that YAML, or we, would take for something else is quoted. */
static int wants_quotes(const char *text)
{
	size_t len = strlen(text);

	if (!len || strchr(" -?:,[]{}#&*!|>'\"%@`~", text[0]) || text[len - 1] == ' ' || text[len - 1] == ':')
		return 1;
	if (strstr(text, ": ") || strstr(text, " #") || config_name_equal(text, "null"))
		return 1;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 127)
			return 1;
	return 0;
}

static void yaml_text(struct str *out, const char *text)
{
	if (!wants_quotes(text)) {
		str_add(out, text);
		return;
	}
	str_add_char(out, '"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			str_printf(out, "\\%c", *text);
		else if (*text == '\n')
			str_add(out, "\\n");
		else if ((unsigned char)*text < ' ' || *text == 127)
			str_printf(out, "\\x%02x", (unsigned char)*text);
		else
			str_add_char(out, *text);
	}
	str_add_char(out, '"');
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
		config_value_text(&value, c, key);
		if (!value.len_bytes)
			continue;
		if (strcmp(group, key->group)) {
			group = key->group;
			str_printf(out, "\n# %s\n", group);
		}
		str_printf(out, "%s: ", key->name);
		if (key->type == TYPE_TEXT)
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

/* What a value looks like, for help. */
static void value_kind(struct str *out, const struct config_key *key)
{
	static const char *const kinds[] = {"TEXT", "on|off", "COUNT", "SIZE", "NUMBER", "STEPS"};

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
	str_add(out, "\nSteps are a whole number, or below 1 a fraction of the run. Counts take k, M, G; "
	             "sizes KiB "
	             "MiB GiB KB MB GB.\nLater settings win: default, file, command line.\n");
}

/* ---- docs/configuration.md ---- */

static void markdown_cell(struct str *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '|')
			str_add_char(out, '\\');
		str_add_char(out, *text);
	}
}

static void markdown_words(struct str *out, const struct config_key *key)
{
	int first = 1;

	for (const struct config_word *w = key->words; w && w->name; w++) {
		if (w->refusal)
			continue;
		str_printf(out, "%s`%s`", first ? "" : ", ", w->name);
		first = 0;
	}
}

static void markdown_value(struct str *out, const struct config_key *key)
{
	static const char *const kinds[] = {"text", "`on`, `off`", "count", "size", "number", "steps"};

	if (key->type == TYPE_SET) {
		str_add(out, "list of ");
		markdown_words(out, key);
	} else if (key->type == TYPE_ENUM) {
		markdown_words(out, key);
	} else {
		str_add(out, kinds[key->type]);
		if (key->words)
			str_add(out, ", ");
		markdown_words(out, key);
	}
}

static void markdown_row(struct str *out, const struct config_key *key)
{
	const char *alias = key->aliases, *comma = "";

	str_printf(out, "| `%s` | %s%s%s | ", key->name, *key->default_text ? "`" : "", key->default_text,
	        *key->default_text ? "`" : "");
	markdown_value(out, key);
	str_add(out, " | ");
	markdown_cell(out, key->meaning);
	str_add(out, " | ");
	while (alias && *alias) {
		size_t len = strcspn(alias, " ");

		str_printf(out, "%s`%.*s`", comma, (int)len, alias);
		comma = " ";
		alias += len;
		alias += strspn(alias, " ");
	}
	str_add(out, " | ");
	comma = "";
	for (int v = 0; v < VERB_COUNT; v++) {
		if ((key->verbs & ((1u << VERB_COUNT) - 1)) == (1u << VERB_COUNT) - 1) {
			str_add(out, "all");
			break;
		}
		if (!(key->verbs >> v & 1))
			continue;
		str_printf(out, "%s%s", comma, verb_infos[v].name);
		comma = " ";
	}
	str_add(out, " |\n");
}

static void markdown_refusals(struct str *out)
{
	str_add(out, "\n## Understood and refused\n\nThese values are known and not done in this version; "
	             "they end "
	             "with exit code 2.\n\n");
	for (int i = 0; i < config_key_count; i++)
		for (const struct config_word *w = config_keys[i].words; w && w->name; w++)
			if (w->refusal)
				str_printf(out, "* `%s=%s` %s\n", config_keys[i].name, w->name, w->refusal);
}

void config_write_markdown(struct str *out)
{
	const char *group = "";

	str_add(out, "# Configuration\n\n"
	             "Made by `ferry help --markdown` from the table that the parser reads; not edited by "
	             "hand.\n\n"
	             "    ferry VERB [CONFIG.yaml] [key=value | --key value | --key=value]...\n\n"
	             "Dashes and underscores are alike, words ignore case. Flags take `on true yes 1` and "
	             "`off false no "
	             "0`; `--key`\nalone is on, `--no-key` off. Counts take `k M G` (`1e8` too), sizes `KiB "
	             "MiB GiB TiB KB "
	             "MB GB TB`. Steps are a\nwhole number, or between 0 and 1 a fraction of the run, "
	             "rounded up. Later "
	             "settings win: default, file, command\nline. Several files may be named. A file may "
	             "hold keys of "
	             "other verbs; on the command line they are an error, as\nis an unknown key anywhere.\n\n"
	             "| verb | does | needs |\n|---|---|---|\n");
	for (int v = 0; v < VERB_COUNT; v++) {
		str_printf(out, "| `%s` | %s | ", verb_infos[v].name, verb_infos[v].meaning);
		markdown_cell(out, verb_infos[v].needs);
		str_add(out, " |\n");
	}
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];

		if (strcmp(group, key->group)) {
			group = key->group;
			str_printf(out,
			        "\n## %s\n\n| key | default | value | meaning | also | verbs "
			        "|\n|---|---|---|---|---|---|\n",
			        group);
		}
		markdown_row(out, key);
	}
	markdown_refusals(out);
	str_add(out,
	        "\n## Files of other trainers\n\n"
	        "Files for accelerate, axolotl, torchtune, LLaMA-Factory and transformers are read as they "
	        "are; "
	        "a line says\nwhich one was recognised. `fsdp_config` blocks are understood with and without "
	        "the "
	        "`fsdp_` prefix. Keys that\nchange nothing here (trackers, launchers, kernels by name) are "
	        "named "
	        "in one line; keys that would change what is\ntrained and are not done (adapters, quantized "
	        "weights, other optimizers, preference training) are refused by name.\nOf `batch_size` "
	        "axolotl "
	        "means the rows of a whole step on one device, the others those of a micro-batch.\n");
}
