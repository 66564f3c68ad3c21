/* Describes model directories, checkpoints and files as JSON. */
#include "checkpoint/inspect.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/hf/hf_dir.h"
#include "checkpoint/hf/peft.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"

#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX_BYTES = 64 << 20 };

/* ---- pieces; json_pack returns NULL if a value is NULL, which means out of memory ---- */

/* Appends `entry` and takes ownership; it may be NULL. */
static int append(json_t *list, json_t *entry)
{
	return list && !json_array_append_new(list, entry) ? 0 : err_set(ERR_NOMEM, "out of memory");
}

static int finish(json_t **out, json_t *object)
{
	*out = object;
	return object ? 0 : err_set(ERR_NOMEM, "out of memory");
}

static int is_floating(enum safetensors_dtype dtype)
{
	return dtype_exponent_bits((enum dtype)dtype) > 0;
}

/* Adds the tensors of one file to the list. */
static int add_tensors(json_t *list, int64_t *parameters, const struct safetensors *file, const char *name)
{
	int err = 0;

	for (int64_t i = 0; !err && i < file->tensor_count; i++) {
		const struct safetensors_tensor *tensor = &file->tensors[i];

		if (is_floating(tensor->dtype))
			*parameters += tensor->count;
		err = append(list, json_pack("{s:s,s:s,s:o,s:I,s:s}", "name", tensor->name, "dtype",
		                           safetensors_dtype_name(tensor->dtype), "shape",
		                           json_ints(tensor->shape, tensor->rank), "bytes",
		                           (json_int_t)tensor->len_bytes, "file", name));
	}
	return err;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- kinds ---- */

static int inspect_file(json_t **out, const char *path)
{
	json_t *list = json_array(), *metadata = json_object();
	struct safetensors *file = NULL;
	int64_t parameters = 0;
	int err = list && metadata ? safetensors_open(&file, path) : ERR_NOMEM;

	if (!err)
		err = add_tensors(list, &parameters, file, base_name(path));
	for (int64_t i = 0; !err && i < file->metadata_count; i++) {
		if (json_object_set_new(
		            metadata, file->metadata[i].key, json_string(file->metadata[i].value)))
			err = ERR_NOMEM;
	}
	if (!err)
		err = finish(out, json_pack("{s:s,s:O,s:I,s:I,s:O}", "kind", "safetensors", "tensors", list,
		                          "parameters", (json_int_t)parameters, "bytes",
		                          (json_int_t)file->file_bytes, "metadata", metadata));
	safetensors_close(file);
	json_decref(list);
	json_decref(metadata);
	return err;
}

static int inspect_adapter(json_t **out, const char *dir)
{
	char *path = file_join(dir, PEFT_WEIGHTS_NAME);
	int err = path ? inspect_file(out, path) : ERR_NOMEM;

	mem_free(path);
	return err;
}

/* Reads model_type from DIR/config.json; "" if there is none. */
static int read_model_type(char **out, const char *dir)
{
	const char *type = "";
	json_t *config = NULL;
	char *path = NULL;
	int err = hf_dir_resolve(&path, dir, "config.json");

	if (!err && path)
		err = json_read_python(&config, path, CONFIG_MAX_BYTES);
	if (!err && json_is_object(config)) {
		err = json_get_str(config, path, "model_type", &type);
		err = err < 0 ? err : 0;
	}
	if (!err) {
		*out = mem_strdup(type);
		err = *out ? 0 : ERR_NOMEM;
	}
	json_decref(config);
	mem_free(path);
	return err;
}

static int inspect_model(json_t **out, const char *path)
{
	json_t *list = json_array(), *files = json_array();
	int64_t parameters = 0, bytes = 0;
	struct hf_dir *dir = NULL;
	char *type = NULL;
	int err = list && files ? hf_dir_open(&dir, path) : ERR_NOMEM;

	for (int f = 0; !err && f < dir->file_count; f++) {
		bytes += dir->files[f]->file_bytes;
		err = add_tensors(list, &parameters, dir->files[f], dir->names[f]);
		if (!err)
			err = append(files, json_pack("{s:s,s:I}", "name", dir->names[f], "bytes",
			                            (json_int_t)dir->files[f]->file_bytes));
	}
	if (!err)
		err = read_model_type(&type, path);
	if (!err)
		err = finish(out, json_pack("{s:s,s:s,s:O,s:I,s:I,s:O}", "kind", "model", "model_type", type,
		                          "tensors", list, "parameters", (json_int_t)parameters, "bytes",
		                          (json_int_t)bytes, "files", files));
	hf_dir_close(dir);
	json_decref(list);
	json_decref(files);
	mem_free(type);
	return err;
}

/* The file with element 0 of a tensor. */
static const char *first_file(const struct manifest *manifest, int tensor)
{
	for (int f = 0; f < manifest->file_count; f++) {
		for (int64_t r = 0; r < manifest->files[f].range_count; r++) {
			const struct plane_range *range = &manifest->files[f].ranges[r];

			if (range->tensor == tensor && !range->first)
				return manifest->files[f].name;
		}
	}
	return "";
}

static json_t *planes_to_json(const struct manifest *manifest)
{
	json_t *list = json_array();

	for (int p = 0; p < PLANE_SAVED_COUNT; p++) {
		if (!(manifest->planes & 1u << p))
			continue;
		if (append(list, json_string(plane_name((enum plane)p)))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

/* Bytes of one tensor in all planes. */
static int64_t tensor_bytes(const struct manifest *manifest, int tensor)
{
	int64_t bytes = 0;

	for (int p = 0; p < PLANE_SAVED_COUNT; p++)
		if (manifest->tensors[tensor].planes & 1u << p)
			bytes += plane_bytes((enum plane)p, manifest->state, manifest->tensors[tensor].count);
	return bytes;
}

static int add_manifest_files(json_t *list, int64_t *bytes, const struct manifest *manifest)
{
	int err = 0;

	*bytes = 0;
	for (int f = 0; !err && f < manifest->file_count; f++) {
		const struct manifest_file *file = &manifest->files[f];
		int64_t elements = 0;

		for (int64_t r = 0; r < file->range_count; r++)
			elements += file->ranges[r].count;
		*bytes += file->len_bytes;
		err = append(list, json_pack("{s:s,s:I,s:I}", "name", file->name, "bytes",
		                           (json_int_t)file->len_bytes, "elements", (json_int_t)elements));
	}
	return err;
}

static int inspect_checkpoint(json_t **out, const char *path)
{
	json_t *list = json_array(), *files = json_array(), *planes = NULL;
	int64_t parameters = 0, bytes = 0;
	const struct manifest *manifest = NULL;
	struct checkpoint *checkpoint = NULL;
	int err = list && files ? checkpoint_open(&checkpoint, path) : ERR_NOMEM;

	if (err)
		goto out;
	manifest = checkpoint_manifest(checkpoint);
	planes = planes_to_json(manifest);
	for (int t = 0; !err && t < manifest->tensor_count; t++) {
		const struct manifest_tensor *tensor = &manifest->tensors[t];

		parameters += tensor->count;
		err = append(list,
		        json_pack("{s:s,s:s,s:o,s:I,s:s}", "name", tensor->name, "dtype", "F32", "shape",
		                json_ints(tensor->shape, tensor->rank), "bytes",
		                (json_int_t)tensor_bytes(manifest, t), "file", first_file(manifest, t)));
	}
	if (!err)
		err = add_manifest_files(files, &bytes, manifest);
	if (!err)
		err = finish(out, json_pack("{s:s,s:I,s:s,s:i,s:O,s:s,s:O,s:I,s:I,s:O,s:O}", "kind",
		                          "checkpoint", "step", (json_int_t)manifest->step, "model_type",
		                          manifest->model_type, "world_size", manifest->world_size, "planes",
		                          planes, "optimizer_state", adamw_state_name(manifest->state),
		                          "tensors", list, "parameters", (json_int_t)parameters, "bytes",
		                          (json_int_t)bytes, "files", files, "training", manifest->training));
out:
	checkpoint_close(checkpoint);
	json_decref(list);
	json_decref(files);
	json_decref(planes);
	return err;
}

/* Adds one checkpoint of an output_dir, complete or not. */
static int add_checkpoint(json_t *list, const char *path, int64_t step, int *whole)
{
	struct checkpoint *checkpoint = NULL;
	int64_t bytes = 0;
	int err = checkpoint_open(&checkpoint, path);

	if (err == ERR_NOMEM)
		return err;
	*whole = !err;
	if (err)
		return append(list, json_pack("{s:o,s:I,s:b,s:o}", "path", json_of_text(path), "step",
		                            (json_int_t)step, "whole", 0, "error", json_of_text(err_text())));
	for (int f = 0; f < checkpoint_manifest(checkpoint)->file_count; f++)
		bytes += checkpoint_manifest(checkpoint)->files[f].len_bytes;
	checkpoint_close(checkpoint);
	return append(list, json_pack("{s:o,s:I,s:I,s:b}", "path", json_of_text(path), "step",
	                            (json_int_t)step, "bytes", (json_int_t)bytes, "whole", 1));
}

static int compare_steps(const void *a, const void *b)
{
	int64_t left = checkpoint_step_of(*(char *const *)a), right = checkpoint_step_of(*(char *const *)b);

	return left < right ? -1 : left > right;
}

/* Sets *found to 1 if there is a checkpoint or a model. */
static int inspect_output(json_t **out, const char *path, int *found)
{
	json_t *list = json_array();
	char **names = NULL, *newest = NULL, *model = file_join(path, "model");
	size_t count = 0;
	int has_model, err = list && model ? file_list_dir(path, &names, &count) : ERR_NOMEM;

	if (!err && count)
		qsort(names, count, sizeof(*names), compare_steps);
	for (size_t i = 0; !err && i < count; i++) {
		int64_t step = checkpoint_step_of(names[i]);
		char *candidate;
		int whole = 0;

		if (step < 0)
			continue;
		candidate = file_join(path, names[i]);
		err = candidate ? add_checkpoint(list, candidate, step, &whole) : ERR_NOMEM;
		if (whole) {
			mem_free(newest);
			newest = candidate;
		} else {
			mem_free(candidate);
		}
	}
	has_model = !err && file_kind_of(model) == FILE_DIR;
	*found = has_model || json_array_size(list);
	if (!err && *found)
		err = finish(out, json_pack("{s:s,s:O,s:o,s:o}", "kind", "output_dir", "checkpoints", list,
		                          "newest", newest ? json_of_text(newest) : json_null(), "model",
		                          has_model ? json_of_text(model) : json_null()));
	json_decref(list);
	file_list_free(names, count);
	mem_free(newest);
	mem_free(model);
	return err;
}

int inspect_path(json_t **out, const char *path)
{
	enum file_kind kind = file_kind_of(path);
	int found = 0, err;

	*out = NULL;
	if (kind == FILE_NONE)
		return err_set(ERR_INPUT, "%s: no such file or directory", path);
	if (kind != FILE_DIR)
		return inspect_file(out, path);
	if (file_is_in(path, manifest_name))
		return inspect_checkpoint(out, path);
	if (file_is_in(path, "model.safetensors") || file_is_in(path, "model.safetensors.index.json"))
		return inspect_model(out, path);
	if (file_is_in(path, PEFT_WEIGHTS_NAME))
		return inspect_adapter(out, path);
	err = inspect_output(out, path, &found);
	if (!err && !found)
		err = inspect_model(out, path); /* its message says what is missing */
	return err;
}
