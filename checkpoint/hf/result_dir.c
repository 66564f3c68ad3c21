/* Puts a HuggingFace directory in its place. */
#include "checkpoint/hf/result_dir.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/file/temp_dir.h"
#include "checkpoint/hf/side_files.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char config_name[] = "config.json";

/* ---- files of ferry and of others ---- */

static int is_digits(const char *text, size_t count)
{
	return strspn(text, "0123456789") == count;
}

static int is_shard(const char *name)
{
	static const char form[] = "model-00001-of-00002.safetensors";

	return strlen(name) == sizeof(form) - 1 && !strncmp(name, form, 6) && is_digits(name + 6, 5) &&
	       !strncmp(name + 11, form + 11, 4) && is_digits(name + 15, 5) && !strcmp(name + 20, form + 20);
}

static int writes(const char *name)
{
	static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
	        "adapter_model.safetensors", "adapter_config.json"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(name, names[i]))
			return 1;
	return is_shard(name) || side_file_is(name);
}

/* Whether a folder holds what ferry writes into a module's, and nothing else. */
static int is_own_folder(const char *path)
{
	char **names = NULL;
	size_t count = 0;
	int is_own = !file_list_dir(path, &names, &count);

	for (size_t i = 0; i < count; i++)
		is_own &= !strcmp(names[i], config_name) || !strcmp(names[i], "model.safetensors");
	file_list_free(names, count);
	return is_own;
}

int result_dir_owns(const char *path, const char *name)
{
	enum file_kind kind = file_kind_of(path);

	return kind == FILE_DIR ? side_folder_is(name) && is_own_folder(path)
	                        : kind == FILE_REGULAR && writes(name);
}

int result_dir_check(const char *dir)
{
	return temp_dir_check(dir, result_dir_owns);
}

/* ---- the place ---- */

static int check_place(const char *dir, enum hf_export_existing existing)
{
	enum file_kind kind = file_kind_of(dir);
	char **names = NULL;
	size_t count = 0;
	int err;

	if (kind == FILE_NONE && file_is_link(dir))
		return err_set(
		        ERR_INPUT, "%s is a broken symbolic link; remove it, or create its target", dir);
	if (kind == FILE_NONE)
		return 0;
	if (kind != FILE_DIR)
		return err_set(ERR_INPUT, "%s: is not a directory; choose another output_dir", dir);
	if (existing == HF_EXPORT_REPLACE)
		return 0;
	err = temp_dir_list(dir, &names, &count);
	if (!err && count)
		err = err_set(ERR_INPUT,
		        "%s: is not empty; choose another output_dir or set overwrite_output_dir=on", dir);
	file_list_free(names, count);
	return err;
}

/* Finds the parent of the temporary directory, and its stem. */
static int find_place(struct result_dir *r, char **parent, char **stem, const char *dir)
{
	char real[PATH_MAX];

	r->is_fixed = temp_dir_is_fixed(dir);
	if (!r->is_fixed)
		return temp_dir_place(parent, stem, dir);
	*parent = mem_strdup(realpath(dir, real) ? real : dir);
	*stem = mem_strdup("model");
	return *parent && *stem ? 0 : ERR_NOMEM;
}

int result_dir_open(struct result_dir *r, const char *dir, enum hf_export_existing existing)
{
	char *parent = NULL, *stem = NULL;
	int err;

	*r = (struct result_dir){.existing = existing};
	err = check_place(dir, existing);
	if (!err)
		err = find_place(r, &parent, &stem, dir);
	if (!err)
		err = file_make_dir(parent);
	if (!err)
		err = temp_dir_clean(parent, stem, TEMP_DIR_WHOLE);
	if (!err) {
		r->temp = temp_dir_name(parent, stem, temp_dir_id());
		r->final = r->is_fixed ? mem_strdup(parent) : file_join(parent, stem);
		err = r->temp && r->final ? file_make_dir(r->temp) : ERR_NOMEM;
	}
	mem_free(parent);
	mem_free(stem);
	if (err)
		result_dir_close(r);
	return err;
}

/* ---- commit ---- */

static int in_both(
        int (*act)(const char *from, const char *to), const char *a, const char *b, const char *name)
{
	char *from = file_join(a, name), *to = file_join(b, name);
	int err = from && to ? act(from, to) : ERR_NOMEM;

	mem_free(from);
	mem_free(to);
	return err;
}

static int remove_second(const char *unused, const char *path)
{
	(void)unused;
	return file_remove_tree(path);
}

static int remove_if_own(const char *unused, const char *path)
{
	const char *name = strrchr(path, '/');

	(void)unused;
	return name && result_dir_owns(path, name + 1) ? file_remove_tree(path) : 0;
}

/* Makes way for a module's folder. */
static int remove_folder(const char *unused, const char *path)
{
	int err = remove_if_own(unused, path);

	if (err || file_kind_of(path) == FILE_NONE)
		return err;
	(void)!err_set(ERR_INPUT, "%s holds files that ferry did not write", path);
	return temp_dir_set_aside(path);
}

static int has(char **names, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(names[i], name))
			return 1;
	return 0;
}

/* Removes files of the old directory that the new one does not have. */
static int remove_stale(const struct result_dir *r, char **made, size_t made_count)
{
	char **names = NULL;
	size_t count = 0;
	int err = file_list_dir(r->final, &names, &count);

	for (size_t i = 0; i < count && !err; i++)
		if (!has(made, made_count, names[i]))
			err = in_both(remove_if_own, r->temp, r->final, names[i]);
	file_list_free(names, count);
	return err;
}

/* Removes config.json first and moves it last: without it an incomplete directory is not a model. */
static int fill(const struct result_dir *r)
{
	char **names = NULL;
	size_t count = 0;
	int err = file_list_dir(r->temp, &names, &count);

	if (!err)
		err = in_both(remove_second, r->temp, r->final, config_name);
	if (!err)
		err = file_sync_dir(r->final);
	for (size_t i = 0; i < count && !err; i++) {
		if (side_folder_is(names[i]))
			err = in_both(remove_folder, r->temp, r->final, names[i]);
		if (!err && strcmp(names[i], config_name))
			err = in_both(file_rename, r->temp, r->final, names[i]);
	}
	if (!err)
		err = remove_stale(r, names, count);
	if (!err)
		err = file_sync_dir(r->final);
	if (!err && has(names, count, config_name))
		err = in_both(file_rename, r->temp, r->final, config_name);
	if (!err)
		err = file_sync_dir(r->final);
	if (!err)
		err = file_remove_tree(r->temp);
	file_list_free(names, count);
	return err;
}

/* If the directory has files of others, renames it as a whole instead of removing it. */
static int keep_foreign(const struct result_dir *r)
{
	int err = result_dir_check(r->final);

	return err == ERR_INPUT ? temp_dir_set_aside(r->final) : err;
}

int result_dir_commit(struct result_dir *r)
{
	int err = file_sync_dir(r->temp);

	if (!err && r->is_fixed)
		return fill(r);
	if (!err && r->existing == HF_EXPORT_REFUSE) { /* fails if the place is no longer empty */
		err = file_rename(r->temp, r->final);
		return err ? err : file_sync_parent(r->final);
	}
	if (!err && file_kind_of(r->final) == FILE_DIR)
		err = keep_foreign(r);
	return err ? err : temp_dir_commit(r->temp, r->final);
}

void result_dir_close(struct result_dir *r)
{
	struct err kept = {0};

	err_take(&kept, ERR_IO); /* keeps the error text */
	if (r->temp)
		(void)!file_remove_tree(r->temp);
	err_give(&kept);
	mem_free(r->temp);
	mem_free(r->final);
	r->temp = r->final = NULL;
}
