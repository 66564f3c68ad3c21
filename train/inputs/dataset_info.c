/* Reads dataset_info.json. */
#include "train/inputs/dataset_info.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "config/table.h"
#include "data/source/sets.h"

#include <string.h>

enum { TABLE_BYTES_MAX = 16 << 20 };

/* Maps entries of a set to keys. */
static const struct mapping {
	const char *object, *name, *key;
	const char *preset; /* the value if the set has none */
	const char *formatting;
} mappings[] = {
        {"columns", "prompt", "field_text", "text", "text"},
        {"columns", "prompt", "field_instruction", "instruction", "alpaca"},
        {"columns", "query", "field_input", "input", "alpaca"},
        {"columns", "response", "field_output", "output", "alpaca"},
        {"columns", "history", "field_history", NULL, "alpaca"},
        {"columns", "system", "field_system", NULL, NULL},
        {"columns", "messages", "field_messages", "conversations", "sharegpt"},
        {"columns", "tools", "field_tools", NULL, "sharegpt"},
        {"columns", "chosen", "field_chosen", "chosen", NULL},
        {"columns", "rejected", "field_rejected", "rejected", NULL},
        {"columns", "kto_tag", "field_label", NULL, NULL},
        {"tags", "role_tag", "field_role", "from", "sharegpt"},
        {"tags", "content_tag", "field_content", "value", "sharegpt"},
        {"tags", "user_tag", "role_user", NULL, "sharegpt"},
        {"tags", "assistant_tag", "role_assistant", NULL, "sharegpt"},
        {"tags", "observation_tag", "role_tool", NULL, "sharegpt"},
        {"tags", "function_tag", "role_tool_call", NULL, "sharegpt"},
        {"tags", "system_tag", "role_system", NULL, "sharegpt"},
};
enum { MAPPINGS = sizeof(mappings) / sizeof(mappings[0]) };

/* Entries that ferry does not support, with advice. */
static const struct {
	const char *object, *name, *advice; /* object NULL: an entry of the set itself */
} refused[] = {
        {NULL, "script_url", "convert it to a file of rows, and set data to that"},
        {NULL, "ms_hub_url", "download it, and set data to the files"},
        {NULL, "om_hub_url", "download it, and set data to the files"},
        {NULL, "cloud_file_name", "download it, and set data to the file"},
        {NULL, "subset", "set data to the files of the subset"},
        {NULL, "folder", "set data to the folder"},
        {NULL, "num_samples", "remove it, and set max_samples, which holds for all sets"},
        {"columns", "images", "only text is supported"},
        {"columns", "videos", "only text is supported"},
        {"columns", "audios", "only text is supported"},
};

struct table {
	char *path, *dir;
	json_t *root;
};

static int table_open(struct table *t, const char *named)
{
	const char *slash = strrchr(named, '/');

	if (file_kind_of(named) == FILE_DIR) {
		t->dir = mem_strdup(named);
		t->path = file_join(named, "dataset_info.json");
	} else {
		t->dir = slash ? mem_strndup(named, (size_t)(slash - named)) : mem_strdup(".");
		t->path = mem_strdup(named);
	}
	return t->dir && t->path ? json_read_file(&t->root, t->path, TABLE_BYTES_MAX) : ERR_NOMEM;
}

static void table_close(struct table *t)
{
	mem_free(t->path);
	mem_free(t->dir);
	json_decref(t->root);
}

static const char *formatting_of(const json_t *set)
{
	const char *text = json_string_value(json_object_get(set, "formatting"));

	return text ? text : "alpaca";
}

/* The formatting, or "text" for rows of one text: alpaca with the column of a prompt and none of an answer.
 */
static const char *kind_of(const json_t *set)
{
	const json_t *columns = json_object_get(set, "columns");
	int is_text = json_is_string(json_object_get(columns, "prompt")) &&
	              !json_object_get(columns, "response") && !json_object_get(columns, "query") &&
	              !json_is_true(json_object_get(set, "ranking"));

	return is_text && !strcmp(formatting_of(set), "alpaca") ? "text" : formatting_of(set);
}

static int set_check(const struct table *t, const char *name, const json_t *set)
{
	const char *split = json_string_value(json_object_get(set, "split"));

	if (!json_is_object(set))
		return err_set(
		        ERR_INPUT, "%s: %s is %s; expected an object", t->path, name, json_kind_name(set));
	if (strcmp(formatting_of(set), "alpaca") != 0 && strcmp(formatting_of(set), "sharegpt") != 0)
		return err_set(ERR_UNSUPPORTED,
		        "%s: %s: formatting %s is not supported; set data to its file", t->path, name,
		        formatting_of(set));
	if (split && strcmp(split, "train") != 0)
		return err_set(ERR_UNSUPPORTED,
		        "%s: %s: split is %s; set data to its files, and data_split=%s", t->path, name, split,
		        split);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const char *object = refused[i].object;
		const json_t *value =
		        json_object_get(object ? json_object_get(set, object) : set, refused[i].name);

		if (value && !json_is_null(value) && !json_is_false(value))
			return err_set(ERR_UNSUPPORTED, "%s: %s has %s: %s", t->path, name, refused[i].name,
			        refused[i].advice);
	}
	return 0;
}

/* Replaces the set's name by its file. */
static int set_path(const struct table *t, struct data_set *to, const json_t *set)
{
	const char *file = json_string_value(json_object_get(set, "file_name"));
	const char *hub = json_string_value(json_object_get(set, "hf_hub_url"));
	char *path;

	if (!file && !hub)
		return err_set(ERR_INPUT, "%s: %s has no file_name", t->path, to->path);
	path = file ? file_join(t->dir, file) : mem_strdup(hub);
	if (!path)
		return ERR_NOMEM;
	mem_free(to->path);
	to->path = path;
	return 0;
}

static int is_in(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
		if (strcspn(at, ",") == len && !strncmp(at, name, len))
			return 1;
	return 0;
}

/* Adds a set's names to values[i], separated by commas. is_odd[i]: one of them differs from the preset. */
static int set_names(char *values[MAPPINGS], int is_odd[MAPPINGS], const json_t *set)
{
	for (size_t i = 0; i < MAPPINGS; i++) {
		const struct mapping *m = &mappings[i];
		const char *name =
		        json_string_value(json_object_get(json_object_get(set, m->object), m->name));
		char *more;

		if (m->formatting && strcmp(m->formatting, kind_of(set)) != 0)
			continue;
		name = name ? name : m->preset;
		if (!name)
			continue;
		is_odd[i] |= !m->preset || strcmp(name, m->preset) != 0;
		if (is_in(values[i], name))
			continue;
		more = mem_printf("%s%s%s", values[i] ? values[i] : "", values[i] ? "," : "", name);
		if (!more)
			return ERR_NOMEM;
		mem_free(values[i]);
		values[i] = more;
	}
	return 0;
}

static int no_set(const struct table *t, const char *name)
{
	struct str names = {0};
	const char *key;
	json_t *value;
	int rc;

	json_object_foreach(t->root, key, value) str_printf(&names, "%s%s", names.len_bytes ? ", " : "", key);
	rc = err_set(ERR_INPUT, "%s is not a file, and %s has no data set of this name; it has %.400s", name,
	        t->path, names.data ? names.data : "none");
	str_free(&names);
	return rc;
}

/* Replaces all names in one key. */
static int spec_apply(const struct table *t, char **spec, char *values[MAPPINGS], int is_odd[MAPPINGS])
{
	struct data_sets sets;
	char *joined;
	int rc = data_sets_parse(&sets, *spec);

	for (int i = 0; i < sets.count && !rc; i++) {
		struct data_set *one = &sets.sets[i];
		const json_t *set = json_object_get(t->root, one->path);

		if (!set && file_kind_of(one->path) != FILE_NONE)
			continue;
		rc = set ? set_check(t, one->path, set) : no_set(t, one->path);
		if (!rc)
			rc = set_names(values, is_odd, set);
		if (!rc)
			rc = set_path(t, one, set);
	}
	joined = rc ? NULL : data_sets_join(&sets);
	data_sets_free(&sets);
	if (!joined)
		return rc ? rc : ERR_NOMEM;
	mem_free(*spec);
	*spec = joined;
	return 0;
}

static int keys_set(
        struct config *c, const struct table *t, char *values[MAPPINGS], const int is_odd[MAPPINGS])
{
	int rc = 0;

	for (size_t i = 0; i < MAPPINGS && !rc; i++)
		if (is_odd[i] && !config_was_set(c, mappings[i].key))
			rc = config_set_meant(c, t->path, mappings[i].key, mappings[i].name, 0, values[i]);
	return rc;
}

int dataset_info_apply(struct config *c)
{
	char *values[MAPPINGS] = {0};
	int is_odd[MAPPINGS] = {0}, rc;
	struct table t = {0};

	if (!c->dataset_info || !*c->dataset_info)
		return 0;
	rc = table_open(&t, c->dataset_info);
	if (rc)
		rc = err_note(rc, "%s", config_where(c, "dataset_info"));
	if (!rc && c->data)
		rc = spec_apply(&t, &c->data, values, is_odd);
	if (!rc && c->eval_data)
		rc = spec_apply(&t, &c->eval_data, values, is_odd);
	if (!rc)
		rc = keys_set(c, &t, values, is_odd);
	for (size_t i = 0; i < MAPPINGS; i++)
		mem_free(values[i]);
	table_close(&t);
	return rc;
}
