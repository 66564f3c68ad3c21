/* Resolves the paths of a configuration. */
#include "train/inputs/paths.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/hf/hub_cache.h"
#include "config/table.h"
#include "data/source/sets.h"
#include "train/inputs/dataset_info.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int path_is_pattern(const char *path)
{
	return !strcmp(path, "-") || (file_is_no_name(path) && strpbrk(path, "*?[,"));
}

/* Replaces *value by `made` (mem_free). */
static int replace(char **value, char *made)
{
	if (!made)
		return ERR_NOMEM;
	mem_free(*value);
	*value = made;
	return 0;
}

/* Refuses a shell variable in a path, because no shell has replaced it. */
static int variable_check(const char *value, const char *where)
{
	size_t len = *value == '$'
	                     ? strspn(value + 1,
	                               "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_{}")
	                     : 0;

	if (!len || file_kind_of(value) != FILE_NONE || (value[len + 1] && value[len + 1] != '/'))
		return 0;
	return err_set(ERR_INPUT,
	        "%s=%s: ferry does not expand %.*s; write the whole path, or ~ for your home", where, value,
	        (int)len + 1, value);
}

static int from_home(char **value)
{
	const char *home = getenv("HOME");

	if ((*value)[0] != '~' || ((*value)[1] != '/' && (*value)[1] != 0) || !home || !*home)
		return 0;
	return replace(value, mem_printf("%s%s", home, *value + 1));
}

/* Looks for a name from a configuration file in the current directory first, then beside that file. */
static int beside_file(char **value, const char *place)
{
	const char *colon = place ? strrchr(place, ':') : NULL, *slash = NULL;
	char *made;

	for (const char *at = place; colon && at < colon; at++)
		if (*at == '/')
			slash = at;
	if (!slash || (*value)[0] == '/' || !strcmp(*value, "-") || file_kind_of(*value) != FILE_NONE)
		return 0;
	made = mem_printf("%.*s/%s", (int)(slash - place), place, *value);
	if (made && file_kind_of(made) == FILE_NONE) {
		mem_free(made);
		return 0;
	}
	return replace(value, made);
}

static int from_cache(char **value, const char *key, enum hub_kind kind)
{
	char *dir = NULL;
	int rc;

	if (file_kind_of(*value) != FILE_NONE)
		return 0;
	rc = hub_cache_find(&dir, *value, kind);
	if (rc || !dir)
		return rc ? err_note(rc, "%s", key) : 0;
	log_info("%s=%s is taken from the HuggingFace cache: %s", key, *value, dir);
	return replace(value, dir);
}

static int resolve_one(char **value, const struct config *c, const struct config_key *key)
{
	int rc = from_home(value);

	if (!rc && key->path != CONFIG_PATH_WRITE)
		rc = beside_file(value, config_set_at(c, key->name));
	if (!rc && (key->path == CONFIG_PATH_MODEL || key->path == CONFIG_PATH_DATA))
		rc = from_cache(value, key->name, key->path == CONFIG_PATH_MODEL ? HUB_MODEL : HUB_DATASET);
	return rc;
}

/* Resolves each set of a list; its weight stays. */
static int resolve_sets(char **value, const struct config *c, const struct config_key *key)
{
	struct data_sets sets;
	int rc = data_sets_parse(&sets, *value);

	if (rc)
		rc = err_note(rc, "%s", config_where(c, key->name));
	for (int i = 0; i < sets.count && !rc; i++)
		rc = resolve_one(&sets.sets[i].path, c, key);
	if (!rc)
		rc = replace(value, data_sets_join(&sets));
	data_sets_free(&sets);
	return rc;
}

int paths_resolve(struct config *c)
{
	int rc = 0;

	for (int i = 0; i < config_key_count && !rc; i++) {
		const struct config_key *key = &config_keys[i];
		char **value;

		if (key->path == CONFIG_PATH_NONE)
			continue;
		value = (char **)((char *)c + key->offset);
		if (!*value || !**value)
			continue;
		rc = variable_check(*value, config_where(c, key->name));
		if (!rc)
			rc = key->path == CONFIG_PATH_DATA ? resolve_sets(value, c, key)
			                                   : resolve_one(value, c, key);
		if (!rc && value == &c->dataset_info) /* comes before data in the list of keys */
			rc = dataset_info_apply(c);
	}
	return rc;
}

/* ---- absolute paths for a file ---- */

/* Makes `value` (mem_free) absolute if it is a path. */
static int from_root(char **value, const char *here, enum config_path kind)
{
	const char *name = *value;

	if (*name == '/' || !strcmp(name, "-"))
		return 0;
	if (kind != CONFIG_PATH_WRITE && file_kind_of(name) == FILE_NONE && !strpbrk(name, "*?["))
		return 0;
	while (name[0] == '.' && name[1] == '/')
		name += 2 + strspn(name + 2, "/");
	return replace(value, !strcmp(name, ".") ? mem_strdup(here)
	                                         : mem_printf("%s/%s", strcmp(here, "/") ? here : "", name));
}

/* Makes each set of a list absolute. A list stays unchanged if the current directory has a comma in its name,
 * because the comma would split the list. */
static int sets_from_root(char **value, const char *here)
{
	struct data_sets sets;
	int rc = data_sets_parse(&sets, *value);

	for (int i = 0; i < sets.count && !rc && (sets.count == 1 || !strchr(here, ',')); i++)
		rc = from_root(&sets.sets[i].path, here, CONFIG_PATH_DATA);
	if (!rc)
		rc = replace(value, data_sets_join(&sets));
	data_sets_free(&sets);
	return rc;
}

static int made_absolute(char **made, const struct config_key *key, const char *value, const char *here)
{
	*made = mem_strdup(value);
	if (!*made)
		return ERR_NOMEM;
	return key->path == CONFIG_PATH_DATA ? sets_from_root(made, here) : from_root(made, here, key->path);
}

int paths_write_yaml(struct str *text, const struct config *c)
{
	char **made = mem_alloc((size_t)config_key_count, sizeof(*made)), here[PATH_MAX];
	int is_known = getcwd(here, sizeof(here)) != NULL, rc = made ? 0 : ERR_NOMEM;
	struct config written = *c;

	for (int i = 0; i < config_key_count && is_known && !rc; i++) {
		const struct config_key *key = &config_keys[i];
		char **value = (char **)((char *)&written + key->offset);

		if (key->path == CONFIG_PATH_NONE || !*value || !**value)
			continue;
		rc = made_absolute(&made[i], key, *value, here);
		*value = made[i];
	}
	if (!rc) {
		config_write_yaml(text, &written);
		rc = str_check(text);
	}
	for (int i = 0; made && i < config_key_count; i++)
		mem_free(made[i]);
	mem_free(made);
	return rc;
}
