/* Splits the words of the command line into settings, files and plain arguments. */
#include "config/args.h"

#include "config/table.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* Length of the name at the start of "name=value"; 0 if the text has another form. */
static size_t name_length(const char *text)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");

	return len && len < ARGUMENT_NAME_BYTES && text[len] == '=' && text[0] != '.' ? len : 0;
}

static int is_yaml_name(const char *text)
{
	const char *dot = strrchr(text, '.');

	return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

static int has_word(const struct config_key *key, const char *text)
{
	for (const struct config_word *w = key->words; w && w->name; w++)
		if (config_name_equal(w->name, text) || config_name_in(text, w->aliases))
			return 1;
	return 0;
}

/* On or off, among other words perhaps: the name may stand alone and behind "no". */
static int is_flag(const char *name)
{
	const struct config_key *key = config_key_find(name);

	return key && (key->type == TYPE_FLAG || (has_word(key, "true") && has_word(key, "false")));
}

/* Whether "--name" may stand without a value: a flag, a key that accepts the word "true", or an unknown
 * name. */
static int may_stand_alone(const char *name)
{
	const struct config_key *key = config_key_find(name);

	return !key || key->type == TYPE_FLAG || has_word(key, "true");
}

static void setting(struct argument *a, const char *name, size_t len, const char *text)
{
	a->kind = ARGUMENT_SETTING;
	snprintf(a->name, sizeof(a->name), "%.*s", (int)len, name);
	a->text = text;
}

/* Whether the text is "key=value" with a known key. The option before it then lacks its value. */
static int is_setting(const char *text)
{
	size_t len = name_length(text);
	char name[ARGUMENT_NAME_BYTES];

	snprintf(name, sizeof(name), "%.*s", (int)len, text);
	return len && config_key_find(name);
}

/* Whether the word behind a flag is its value. Of a key with other words it is, unless it is a file. */
static int is_flag_value(const char *name, const char *text)
{
	if (config_key_find(name)->type == TYPE_FLAG)
		return config_name_in(text, "on off true false yes no 1 0");
	return strncmp(text, "--", 2) && !is_yaml_name(text) && !is_setting(text);
}

/* "--name=value", "--name value", "--flag", "--no-flag". *used is the number of words taken. */
static int option(struct argument *a, int *used, int argc, char *const argv[])
{
	const char *name = argv[0] + 2, *next = argc > 1 ? argv[1] : NULL;
	size_t len = name_length(name);

	if (len) {
		setting(a, name, len, name + len + 1);
		return 0;
	}
	len = strlen(name);
	if (!len || len >= ARGUMENT_NAME_BYTES || strspn(name, "-=."))
		return err_set(ERR_INPUT, "\"%.60s\" is not an option; write --key value", argv[0]);
	if (!config_key_find(name) && (!strncmp(name, "no-", 3) || !strncmp(name, "no_", 3)) &&
	        is_flag(name + 3)) {
		setting(a, name + 3, len - 3, "off");
		return 0;
	}
	if (is_flag(name) && !(next && is_flag_value(name, next))) {
		setting(a, name, len, "on");
		return 0;
	}
	if (next && strncmp(next, "--", 2) && !is_setting(next)) {
		setting(a, name, len, next);
		*used = 2;
		return 0;
	}
	if (config_key_find(name) == config_key_find("resume_from_checkpoint"))
		return err_set(ERR_INPUT,
		        "--%s needs a value; write --%s auto for the newest checkpoint, or --%s PATH", name,
		        name, name);
	if (!may_stand_alone(name))
		return err_set(ERR_INPUT, "--%s needs a value%s%s%s", name,
		        next ? is_setting(next) ? "; the next word is another setting, else write --"
		                                : "; if it begins with dashes, write --"
		             : "",
		        next ? name : "", next ? "=VALUE" : "");
	setting(a, name, len, "true");
	return 0;
}

/* A word that is no option: "name=value", a configuration file or a plain argument. */
static void operand(struct argument *a, enum verb verb, const char *text)
{
	size_t len = *text == '-' ? 0 : name_length(text);

	a->text = text;
	if (len && (!strchr(text, '/') || file_is_no_name(text)))
		setting(a, text, len, text + len + 1);
	else if (!verb_infos[verb].positional || is_yaml_name(text))
		a->kind = ARGUMENT_FILE;
	else
		a->kind = ARGUMENT_PLAIN;
}

static int argument(struct argument *a, int *used, enum verb verb, int argc, char *const argv[])
{
	const char *text = argv[0];

	*used = 1;
	if (!strncmp(text, "--", 2))
		return option(a, used, argc, argv);
	if (*text == '-' && text[1])
		return err_set(ERR_INPUT,
		        "\"%.60s\" is not an option; write --key value, and put a path that begins with a "
		        "dash after --",
		        text);
	operand(a, verb, text);
	return 0;
}

int argument_options(int argc, char *const argv[])
{
	int count = 0;

	while (count < argc && strcmp(argv[count], "--"))
		count++;
	return count;
}

/* Whether "--name a b" may be a list. Where bare words are files, those that are none are elements. */
static int takes_list(const char *name, enum verb verb)
{
	const struct config_key *key = config_key_find(name);

	if (verb != VERB_TRAIN && verb != VERB_PLAN && verb != VERB_CONFIG)
		return 0;
	return !key || config_type_is_text(key->type) || key->type == TYPE_ENUM || key->type == TYPE_SET;
}

/* Files that exist are elements of data alone. */
static int is_element(const char *name, const char *text)
{
	const struct config_key *key = config_key_find(name);

	return *text != '-' && !is_yaml_name(text) && !name_length(text) &&
	       (!key || key->path == CONFIG_PATH_DATA || file_kind_of(text) != FILE_REGULAR);
}

/* Joins the words behind "--name value" that belong to it. *room: for the text. Returns their number. */
static int elements_take(struct argument *a, char **room, enum verb verb, int argc, char *const argv[])
{
	int count = 0;

	if (a->kind != ARGUMENT_SETTING || !takes_list(a->name, verb))
		return 0;
	while (count < argc && is_element(a->name, argv[count])) {
		int bytes = sprintf(*room, "%s,%s", count ? "" : a->text, argv[count]);

		if (!count)
			a->text = *room;
		*room += bytes;
		count++;
	}
	a->words = count ? count + 1 : 0;
	*room += count > 0;
	return count;
}

/* Of expressions, as "x{1,2}", none may have a comma. */
static int elements_check(const struct argument *a)
{
	const struct config_key *key = config_key_find(a->name);
	int commas = 0;

	for (const char *at = a->text; a->words && (at = strchr(at, ',')); at++)
		commas++;
	if (commas < a->words || !a->words || !key || key->type != TYPE_PATTERN)
		return 0;
	return err_set(ERR_INPUT,
	        "%s: a word of a list may not contain a comma; write a list in brackets, as in "
	        "%s='[\"a{1,2}\", \"b\"]'",
	        a->name, a->name);
}

int argument_split(struct argument **list, int *count, enum verb verb, int argc, char *const argv[])
{
	int options = argument_options(argc, argv), err = 0, used;
	size_t bytes = 0;
	char *room;

	for (int i = 0; i < argc; i++)
		bytes += strlen(argv[i]) + 1;
	*count = 0;
	*list = mem_alloc((size_t)argc * sizeof(**list) + bytes, 1);
	if (!*list)
		return ERR_NOMEM;
	room = (char *)(*list + argc); /* for joined words */
	for (int i = 0; i < options && !err; i += used) {
		struct argument *a = &(*list)[(*count)++];

		err = argument(a, &used, verb, argc - i, argv + i);
		if (!err && used == 2) {
			used += elements_take(a, &room, verb, options - i - 2, argv + i + 2);
			err = elements_check(a);
		}
	}
	for (int i = options + 1; i < argc && !err; i++)
		operand(&(*list)[(*count)++], verb, argv[i]);
	if (err) {
		mem_free(*list);
		*list = NULL;
	}
	return err;
}

/* ---- words that are no files ---- */

const char *argument_file_key(const char *path)
{
	static const struct {
		const char *end, *key;
	} kinds[] = {{".csv", "data"}, {".tsv", "data"}, {".jsonl", "data"}, {".parquet", "data"},
	        {".txt", "data"}, {".md", "data"}, {".gz", "data"}, {".zst", "data"},
	        {".safetensors", "model"}, {".gguf", "model"}};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (str_ends_with(path, kinds[i].end))
			return kinds[i].key;
	return NULL;
}

int argument_not_a_file(const struct argument *a, int err)
{
	enum file_kind kind = file_kind_of(a->text);
	const char *key = argument_file_key(a->text);

	if (kind == FILE_NONE && config_key_find(a->text))
		return err_set(err, "%s needs a value; write %s=VALUE", a->text, a->text);
	if (kind == FILE_NONE)
		return err_set(err, "%s: no such file; settings are written key=value or --key value%s",
		        a->text, strpbrk(a->text, "/.=") ? "" : "; quote a text that contains spaces");
	if (kind == FILE_DIR)
		return err_set(err,
		        "%s is a directory; expected a configuration file (.yaml); for a model write "
		        "model=%s",
		        a->text, a->text);
	return key ? err_set(err, "%s is not a configuration file; write %s=%s", a->text, key, a->text) : err;
}
