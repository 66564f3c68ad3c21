/* Refuses to replace what a call reads. */
#include "train/run_dir/run_inputs.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "config/table.h"
#include "data/source/sets.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Whether the path is the directory or lies in it. Compares identities, since a directory may be mounted in
 * two places. */
static int lies_in(const char *path, const struct stat *dir)
{
	char real[PATH_MAX], *slash;
	struct stat st;

	if (!realpath(path, real))
		return 0;
	do {
		if (!stat(*real ? real : "/", &st) && st.st_dev == dir->st_dev && st.st_ino == dir->st_ino)
			return 1;
		slash = strrchr(real, '/');
		if (slash)
			*slash = 0;
	} while (slash);
	return 0;
}

/* Whether the path, or an entry of the directory that it names, lies in the directory. */
static int is_read_from(const char *path, const struct stat *dir)
{
	char **names = NULL;
	size_t count = 0;
	int found = lies_in(path, dir);

	if (!found && file_kind_of(path) == FILE_DIR)
		(void)!file_list_dir(path, &names, &count); /* reading it reports the error */
	for (size_t i = 0; i < count && !found; i++) {
		char *entry = file_join(path, names[i]);

		found = entry && file_is_link(entry) && lies_in(entry, dir);
		mem_free(entry);
	}
	file_list_free(names, count);
	return found;
}

/* The same of a pattern for names of files: of the directory before its first special character. */
static int pattern_is_read_from(const char *path, const struct stat *dir)
{
	char *fixed = mem_strndup(path, strcspn(path, "*?[")), *parent = fixed ? file_dir_of(fixed) : NULL;
	int found = parent && is_read_from(fixed[0] ? parent : ".", dir);

	mem_free(parent);
	mem_free(fixed);
	return found;
}

static int value_is_read_from(const char *path, const struct stat *dir)
{
	return file_kind_of(path) == FILE_NONE && strpbrk(path, "*?[") ? pattern_is_read_from(path, dir)
	                                                               : is_read_from(path, dir);
}

/* The data's keys name several sets. */
static int sets_are_read_from(const char *list, const struct stat *dir)
{
	struct data_sets sets = {0};
	int found = 0;

	(void)!data_sets_parse(&sets, list); /* reading it reports the error */
	for (int i = 0; i < sets.count && !found; i++)
		found = value_is_read_from(sets.sets[i].path, dir);
	data_sets_free(&sets);
	return found;
}

/* The value of a key that names what is read; NULL: none. */
static const char *read_path(const struct config *c, const struct config_key *key)
{
	const char *path = key->path == CONFIG_PATH_NONE || key->path == CONFIG_PATH_WRITE
	                           ? NULL
	                           : *(char *const *)((const char *)c + key->offset);

	return path && *path ? path : NULL;
}

int run_inputs_check(const struct config *c, const char *dir, const char *key, const char *value)
{
	struct stat st;

	if (stat(dir, &st))
		return 0;
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *k = &config_keys[i];
		const char *path = read_path(c, k);

		if (path && (k->path == CONFIG_PATH_DATA ? sets_are_read_from(path, &st)
		                                         : value_is_read_from(path, &st)))
			return err_set(ERR_INPUT,
			        "%s=%s would replace %s=%s, which ferry reads; choose another %s", key, value,
			        k->name, path, key);
	}
	return 0;
}

int run_inputs_check_apart(const struct config *c)
{
	struct stat out, st;

	if (stat(c->output_dir, &out))
		return 0;
	for (int i = 0; i < config_key_count; i++) {
		const char *path = read_path(c, &config_keys[i]);

		if (path && !stat(path, &st) && st.st_dev == out.st_dev && st.st_ino == out.st_ino)
			return err_set(ERR_INPUT,
			        "output_dir=%s is %s=%s, which ferry reads; choose another output_dir",
			        c->output_dir, config_keys[i].name, path);
	}
	return 0;
}
