/* Opens the weight files of a HuggingFace directory and checks them against the index. */
#include "checkpoint/hf/hf_dir.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/hf/side_files.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_MAX_BYTES = 64 << 20 };

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

/* Whether `path` is below directory `root`. Both are absolute, without links. */
static int is_below(const char *path, const char *root)
{
	size_t len = strlen(root);

	return !strncmp(path, root, len) && (path[len] == '/' || (len && root[len - 1] == '/'));
}

/* Whether `target` is in <cache>/blobs, if root is <cache>/snapshots/<revision>. */
static int is_blob(const char *target, const char *root)
{
	char blobs[PATH_MAX];
	char *slash;

	if (strlen(root) >= sizeof(blobs) - 16)
		return 0;
	strcpy(blobs, root);
	slash = strrchr(blobs, '/');
	if (!slash)
		return 0;
	*slash = 0;
	slash = strrchr(blobs, '/');
	if (!slash || strcmp(slash, "/snapshots"))
		return 0;
	strcpy(slash, "/blobs");
	return is_below(target, blobs);
}

int hf_dir_resolve(char **path, const char *dir, const char *name)
{
	char root[PATH_MAX], target[PATH_MAX];
	char *joined = file_join(dir, name);
	int err = 0;

	*path = NULL;
	if (!joined)
		return ERR_NOMEM;
	if (!realpath(dir, root)) {
		err = err_set(ERR_INPUT, "%s: cannot open: %s", dir, strerror(errno));
		goto out;
	}
	if (!realpath(joined, target)) {
		if (errno != ENOENT)
			err = err_set(ERR_INPUT, "%s: cannot open: %s", joined, strerror(errno));
		else if (file_is_link(joined))
			err = err_set(ERR_INPUT, "%s: is a link to a missing file", joined);
		goto out;
	}
	if (!is_below(target, root) && !is_blob(target, root)) {
		err = err_set(ERR_INPUT, "%s: is a link to %s, outside the directory; replace it with a copy",
		        joined, target);
		goto out;
	}
	*path = joined;
	joined = NULL;
out:
	mem_free(joined);
	return err;
}

static int add_file(struct hf_dir *dir, const char *name, const char *path)
{
	int err = ERR_NOMEM;

	dir->names[dir->file_count] = mem_strdup(name);
	if (dir->names[dir->file_count])
		err = safetensors_open(&dir->files[dir->file_count], path);
	if (err) {
		mem_free(dir->names[dir->file_count]);
		return err;
	}
	dir->file_count++;
	return 0;
}

static int alloc_files(struct hf_dir *dir, size_t count)
{
	dir->files = mem_alloc(count, sizeof(*dir->files));
	dir->names = mem_alloc(count, sizeof(*dir->names));
	return dir->files && dir->names ? 0 : err_note(ERR_NOMEM, "%s", dir->path);
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_shard_name(const char *index_path, const char *tensor, const json_t *value)
{
	struct safetensors_name_text shown = safetensors_name_show(tensor);
	const char *name = json_string_value(value);

	if (!name)
		return err_set(ERR_INPUT, "%s: weight_map: \"%s\" is %s; expected a file name", index_path,
		        shown.text, json_kind_name(value));
	if (strlen(name) != json_string_length(value))
		return err_set(ERR_INPUT, "%s: weight_map: the file name of \"%s\" holds NUL", index_path,
		        shown.text);
	if (!*name || strchr(name, '/') || name[0] == '.' || strlen(name) > NAME_MAX)
		return err_set(ERR_INPUT,
		        "%s: weight_map: \"%s\" is in \"%s\"; expected a plain file name in this directory",
		        index_path, shown.text, safetensors_name_show(name).text);
	return 0;
}

/* Opens the files in weight_map, in order of names. */
static int open_shards(struct hf_dir *dir, const char *index_path, json_t *map)
{
	size_t entries = json_object_size(map), count = 0;
	const char **names = mem_alloc(entries, sizeof(*names));
	const char *tensor;
	json_t *value;
	int err = names ? 0 : err_note(ERR_NOMEM, "%s", index_path);

	if (err)
		return err;
	json_object_foreach(map, tensor, value)
	{
		err = check_shard_name(index_path, tensor, value);
		if (err)
			goto out;
		names[count++] = json_string_value(value);
	}
	if (!count) {
		err = err_set(ERR_INPUT, "%s: weight_map lists no tensor", index_path);
		goto out;
	}
	qsort(names, count, sizeof(*names), compare_strings);
	entries = count;
	count = 1;
	for (size_t i = 1; i < entries; i++) {
		if (strcmp(names[i], names[count - 1]))
			names[count++] = names[i];
	}
	err = alloc_files(dir, count);
	for (size_t i = 0; !err && i < count; i++) {
		char *path;

		err = hf_dir_resolve(&path, dir->path, names[i]);
		if (!err && !path)
			err = err_set(ERR_INPUT, "%s: shard %s, listed in %s, is missing", dir->path,
			        safetensors_name_show(names[i]).text, index_name);
		if (!err)
			err = add_file(dir, names[i], path);
		mem_free(path);
	}
out:
	mem_free(names);
	return err;
}

/* Checks that each tensor of shard `f` is listed for it, or is listed nowhere and in no earlier shard. */
static int check_shard(const struct hf_dir *dir, int f, const char *index_path, json_t *map)
{
	const struct safetensors *file = dir->files[f];

	for (int64_t i = 0; i < file->tensor_count; i++) {
		const char *name = file->tensors[i].name;
		const char *listed = json_string_value(json_object_get(map, name));

		if (listed && strcmp(listed, dir->names[f]))
			return err_set(ERR_INPUT, "%s: tensor \"%s\" is in %s, but is listed for %s",
			        index_path, safetensors_name_show(name).text, dir->names[f], listed);
		for (int g = 0; !listed && g < f; g++) {
			if (safetensors_find(dir->files[g], name))
				return err_set(ERR_INPUT, "%s: tensor \"%s\" is in two shards, %s and %s",
				        dir->path, safetensors_name_show(name).text, dir->names[g],
				        dir->names[f]);
		}
	}
	return 0;
}

/* Checks that each tensor in weight_map is in its shard. */
static int check_listed(const struct hf_dir *dir, const char *index_path, json_t *map)
{
	const char *tensor;
	json_t *value;

	json_object_foreach(map, tensor, value)
	{
		const char *name = json_string_value(value);
		int f = 0;

		while (strcmp(dir->names[f], name))
			f++;
		if (!safetensors_find(dir->files[f], tensor))
			return err_set(ERR_INPUT,
			        "%s: tensor \"%s\" is listed for %s, which does not hold it", index_path,
			        safetensors_name_show(tensor).text, name);
	}
	return 0;
}

static int open_index(struct hf_dir *dir, const char *index_path)
{
	json_t *root = NULL, *map = NULL;
	int err = json_read_file(&root, index_path, INDEX_MAX_BYTES);

	if (err)
		return err;
	if (!json_is_object(root)) {
		err = err_set(ERR_INPUT, "%s: is %s; expected an object", index_path, json_kind_name(root));
		goto out;
	}
	err = json_get_object(root, index_path, "weight_map", &map);
	if (err < 0)
		goto out;
	if (!map) {
		err = err_set(ERR_INPUT, "%s: has no weight_map", index_path);
		goto out;
	}
	err = open_shards(dir, index_path, map);
	for (int f = 0; !err && f < dir->file_count; f++)
		err = check_shard(dir, f, index_path, map);
	if (!err)
		err = check_listed(dir, index_path, map);
out:
	json_decref(root);
	return err;
}

/* Explains a directory without safetensors weights by what it has instead. */
static int fail_without_weights(const char *path)
{
	static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
	char **names = NULL;
	size_t count = 0;
	int err;

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		char *other = file_join(path, others[i]);
		enum file_kind kind = other ? file_kind_of(other) : FILE_NONE;

		mem_free(other);
		if (kind != FILE_NONE)
			return err_set(ERR_UNSUPPORTED,
			        "%s: the weights are in %s, a Python pickle; convert them with: python3 -c "
			        "\"from transformers import AutoModelForCausalLM as M; "
			        "M.from_pretrained('%s').save_pretrained('%s-safetensors')\"",
			        path, others[i], path, path);
	}
	err = file_list_dir(path, &names, &count);
	if (err)
		return err;
	err = err_set(ERR_INPUT, "%s: contains no weights: neither %s nor %s", path, single_name, index_name);
	for (size_t i = 0; i < count; i++)
		if (str_ends_with(names[i], ".gguf"))
			err = err_set(ERR_UNSUPPORTED, "%s: %s is a GGUF file; ferry reads safetensors", path,
			        names[i]);
	file_list_free(names, count);
	return err;
}

/* ---- folders of modules ---- */

/* Calls the tensors of the last file by its folder. All names begin alike then, so their order stays. */
static int name_tensors(struct hf_dir *dir, const char *name)
{
	struct safetensors *file = dir->files[dir->file_count - 1];
	size_t count = (size_t)(dir->tensor_name_count + file->tensor_count);
	char **grown = mem_resize(dir->tensor_names, count + 1, sizeof(*grown));

	if (!grown)
		return ERR_NOMEM;
	dir->tensor_names = grown;
	for (int64_t i = 0; i < file->tensor_count; i++) {
		char *full = mem_printf(
		        "%.*s.%s", (int)strcspn(name, "/" SIDE_FILE_FOLDER), name, file->tensors[i].name);

		if (!full)
			return ERR_NOMEM;
		dir->tensor_names[dir->tensor_name_count++] = full;
		file->tensors[i].name = full;
	}
	return 0;
}

static int open_folder(struct hf_dir *dir, const char *name)
{
	char **names, *path;
	struct safetensors **files;
	int err = hf_dir_resolve(&path, dir->path, name);

	if (err || !path)
		return err;
	names = mem_resize(dir->names, (size_t)dir->file_count + 1, sizeof(*names));
	if (names)
		dir->names = names;
	files = mem_resize(dir->files, (size_t)dir->file_count + 1, sizeof(*files));
	if (files)
		dir->files = files;
	err = names && files ? add_file(dir, name, path) : ERR_NOMEM;
	if (!err)
		err = name_tensors(dir, name);
	mem_free(path);
	return err;
}

/* Those that modules.json names. */
static int open_folders(struct hf_dir *dir)
{
	char *path = file_join(dir->path, "modules.json");
	json_t *list = NULL;
	int err = path ? 0 : ERR_NOMEM;

	if (!err && file_kind_of(path) == FILE_REGULAR)
		err = json_read_file(&list, path, INDEX_MAX_BYTES);
	for (size_t i = 0; !err && i < json_array_size(list); i++) {
		static const char *const forms[] = {"/", SIDE_FILE_FOLDER};
		const char *folder = json_string_value(json_object_get(json_array_get(list, i), "path"));

		for (size_t f = 0; !err && folder && side_folder_is(folder) && !strchr(folder, '/') && f < 2;
		        f++) {
			char *name = mem_printf("%s%s%s", folder, forms[f], single_name);

			err = name ? open_folder(dir, name) : ERR_NOMEM;
			mem_free(name);
		}
	}
	json_decref(list);
	mem_free(path);
	return err;
}

int hf_dir_open(struct hf_dir **out, const char *path)
{
	struct hf_dir *dir = NULL;
	char *single = NULL, *index = NULL;
	int err;

	*out = NULL;
	if (file_kind_of(path) != FILE_DIR)
		return err_set(ERR_INPUT, "%s: %s", path,
		        file_kind_of(path) == FILE_NONE ? "no such directory"
		                                        : "is not a directory; expected a model directory");
	dir = mem_alloc(1, sizeof(*dir));
	if (!dir)
		return ERR_NOMEM;
	dir->path = mem_strdup(path);
	err = dir->path ? hf_dir_resolve(&single, path, single_name) : ERR_NOMEM;
	if (err)
		goto out;
	if (single) {
		err = alloc_files(dir, 1);
		if (!err)
			err = add_file(dir, single_name, single);
	} else {
		err = hf_dir_resolve(&index, path, index_name);
		if (!err)
			err = index ? open_index(dir, index) : fail_without_weights(path);
	}
	if (!err)
		err = open_folders(dir);
out:
	mem_free(single);
	mem_free(index);
	if (err)
		hf_dir_close(dir);
	else
		*out = dir;
	return err;
}

void hf_dir_close(struct hf_dir *dir)
{
	if (!dir)
		return;
	for (int i = 0; i < dir->file_count; i++) {
		safetensors_close(dir->files[i]);
		mem_free(dir->names[i]);
	}
	for (int64_t i = 0; i < dir->tensor_name_count; i++)
		mem_free(dir->tensor_names[i]);
	mem_free(dir->tensor_names);
	mem_free(dir->files);
	mem_free(dir->names);
	mem_free(dir->path);
	mem_free(dir);
}
