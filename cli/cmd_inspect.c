#include "cli/cli.h"
#include "cli/progress.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/hf_dir.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* `ferry inspect`: what a file or directory holds, from headers alone. */

struct listing {
	json_t *root, *tensors;
	int64_t parameters, bytes, count;
};

static int listing_begin(struct listing *l, const char *kind, const char *path)
{
	l->tensors = json_array();
	l->root = json_pack("{s:s, s:s}", "kind", kind, "path", path);
	return l->root && l->tensors ? 0 : err_set(ERR_NOMEM, "out of memory for a listing");
}

static int listing_add(struct listing *l, const struct safetensors *file, const char *name)
{
	for (int64_t i = 0; i < file->tensor_count; i++) {
		const struct safetensors_tensor *t = &file->tensors[i];
		json_t *shape = json_array();

		for (int d = 0; d < t->rank; d++)
			json_array_append_new(shape, json_integer(t->shape[d]));
		json_array_append_new(
		        l->tensors, json_pack("{s:s, s:s, s:o, s:I, s:s}", "name", t->name, "dtype",
		                            safetensors_dtype_name(t->dtype), "shape", shape, "bytes",
		                            (json_int_t)t->len_bytes, "file", name));
		l->parameters += t->count;
		l->bytes += t->len_bytes;
		l->count++;
	}
	return json_array_size(l->tensors) == (size_t)l->count
	               ? 0
	               : err_set(ERR_NOMEM, "out of memory for a listing");
}

static int add_metadata(struct listing *l, const struct safetensors *file)
{
	json_t *metadata = json_object();

	for (int64_t i = 0; i < file->metadata_count; i++)
		json_object_set_new(metadata, file->metadata[i].key, json_string(file->metadata[i].value));
	return json_object_set_new(l->root, "metadata", metadata)
	               ? err_set(ERR_NOMEM, "out of memory for a listing")
	               : 0;
}

static int inspect_file(struct listing *l, const char *path)
{
	const char *slash = strrchr(path, '/');
	struct safetensors *file = NULL;
	int err = safetensors_open(&file, path);

	if (!err)
		err = listing_begin(l, "safetensors", path);
	if (!err)
		err = listing_add(l, file, slash ? slash + 1 : path);
	if (!err)
		err = add_metadata(l, file);
	safetensors_close(file);
	return err;
}

/* What config.json says a model is, where it says so. */
static int add_model(struct listing *l, const char *dir)
{
	char *path = file_join(dir, "config.json");
	json_t *config = NULL;
	const char *type = NULL;
	int err = path ? 0 : ERR_NOMEM;

	if (!err && file_kind_of(path) == FILE_REGULAR) {
		err = json_read_file(&config, path, 16 << 20);
		if (!err)
			err = json_get_str(config, path, "model_type", &type);
		err = err < 0 ? err : 0;
		if (!err && type)
			json_object_set_new(l->root, "model_type", json_string(type));
	}
	json_decref(config);
	mem_free(path);
	return err;
}

static int inspect_model(struct listing *l, const char *path)
{
	struct hf_dir *dir = NULL;
	int err = hf_dir_open(&dir, path);

	if (!err)
		err = listing_begin(l, "huggingface", path);
	for (int i = 0; !err && i < dir->file_count; i++)
		err = listing_add(l, dir->files[i], dir->names[i]);
	if (!err)
		err = add_model(l, path);
	hf_dir_close(dir);
	return err;
}

/* ---- what is where ---- */

static int has(const char *dir, const char *name)
{
	char *path = file_join(dir, name);
	int found = path && file_kind_of(path) != FILE_NONE;

	mem_free(path);
	return found;
}

/* A checkpoint: the model's tensors, and which planes of each are kept. */
static int inspect_checkpoint(struct listing *l, const char *path)
{
	struct manifest *m = NULL;
	json_t *planes = json_array(), *files = json_array();
	int err = manifest_read(&m, path), element_bytes = 0;

	if (!err)
		err = listing_begin(l, "checkpoint", path);
	if (err)
		goto out;
	for (int p = 0; p < PLANE_COUNT; p++)
		if (m->planes >> p & 1) {
			element_bytes += plane_bytes(p);
			json_array_append_new(planes, json_string(plane_name(p)));
		}
	for (int i = 0; i < m->tensor_count; i++) {
		const struct manifest_tensor *t = &m->tensors[i];
		json_t *shape = json_array();

		for (int d = 0; d < t->rank; d++)
			json_array_append_new(shape, json_integer(t->shape[d]));
		json_array_append_new(
		        l->tensors, json_pack("{s:s, s:s, s:o, s:I}", "name", t->name, "dtype", "F32",
		                            "shape", shape, "bytes", (json_int_t)(t->count * element_bytes)));
		l->parameters += t->count;
		l->count++;
	}
	for (int i = 0; i < m->file_count; i++) {
		json_array_append_new(files, json_pack("{s:s, s:I}", "name", m->files[i].name, "bytes",
		                                     (json_int_t)m->files[i].len_bytes));
		l->bytes += m->files[i].len_bytes;
	}
	json_object_set_new(l->root, "model_type", json_string(m->model_type));
	json_object_set_new(l->root, "step", json_integer(m->step));
	json_object_set_new(l->root, "world_size", json_integer(m->world_size));
	json_object_set(l->root, "planes", planes);
	json_object_set(l->root, "files", files);
	json_object_set(l->root, "training", m->training);
out:
	json_decref(planes);
	json_decref(files);
	manifest_free(m);
	return err;
}

/* An output_dir: its checkpoints. */
static int inspect_run(struct listing *l, const char *path)
{
	char **names = NULL;
	size_t count = 0;
	json_t *steps = json_array();
	int err = file_list_dir(path, &names, &count);

	if (!err)
		err = listing_begin(l, "run", path);
	for (size_t i = 0; i < count && !err; i++)
		if (checkpoint_step_of(names[i]) >= 0)
			json_array_append_new(steps, json_pack("{s:s, s:I}", "name", names[i], "step",
			                                     (json_int_t)checkpoint_step_of(names[i])));
	if (!err)
		json_object_set(l->root, "checkpoints", steps);
	file_list_free(names, count);
	json_decref(steps);
	return err;
}

static int inspect(struct listing *l, const char *path)
{
	enum file_kind kind = file_kind_of(path);

	if (kind == FILE_REGULAR)
		return inspect_file(l, path);
	if (has(path, "model.safetensors") || has(path, "model.safetensors.index.json"))
		return inspect_model(l, path);
	if (has(path, manifest_name))
		return inspect_checkpoint(l, path);
	if (has(path, "config.yaml"))
		return inspect_run(l, path);
	return err_set(ERR_INPUT,
	        "%s holds neither a HuggingFace model (model.safetensors, model.safetensors.index.json) nor "
	        "a checkpoint "
	        "of ferry",
	        path);
}

static void print_row(const json_t *tensor)
{
	struct str shape = {0}, bytes = {0};
	const json_t *dims = json_object_get(tensor, "shape");

	str_add_char(&shape, '[');
	for (size_t i = 0; i < json_array_size(dims); i++)
		str_printf(&shape, "%s%lld", i ? ", " : "",
		        (long long)json_integer_value(json_array_get(dims, i)));
	str_add_char(&shape, ']');
	progress_bytes(&bytes, json_integer_value(json_object_get(tensor, "bytes")));
	printf("%-5s %-18s %10s  %s\n", json_string_value(json_object_get(tensor, "dtype")),
	        shape.data ? shape.data : "", bytes.data ? bytes.data : "",
	        safetensors_name_show(json_string_value(json_object_get(tensor, "name"))).text);
	str_free(&shape);
	str_free(&bytes);
}

/* What only checkpoints and runs have. */
static void print_state(const json_t *root)
{
	const json_t *value;
	size_t i;

	json_array_foreach(json_object_get(root, "files"), i, value)
	        printf("file %s: %lld bytes\n", json_string_value(json_object_get(value, "name")),
	                (long long)json_integer_value(json_object_get(value, "bytes")));
	json_array_foreach(json_object_get(root, "checkpoints"), i, value)
	        printf("%s\n", json_string_value(json_object_get(value, "name")));
	if (json_object_get(root, "step"))
		printf("step %lld, written by %lld ranks, planes:",
		        (long long)json_integer_value(json_object_get(root, "step")),
		        (long long)json_integer_value(json_object_get(root, "world_size")));
	json_array_foreach(json_object_get(root, "planes"), i, value) printf(" %s", json_string_value(value));
	if (json_object_get(root, "step"))
		printf("\n");
}

static void print_listing(const struct listing *l)
{
	const char *type = json_string_value(json_object_get(l->root, "model_type")), *key;
	struct str total = {0};
	const json_t *value;
	size_t i;

	progress_bytes(&total, l->bytes);
	json_array_foreach(l->tensors, i, value) print_row(value);
	json_object_foreach(json_object_get(l->root, "metadata"), key, value) printf("metadata %s: %s\n",
	        safetensors_name_show(key).text, safetensors_name_show(json_string_value(value)).text);
	print_state(l->root);
	if (json_object_get(l->root, "checkpoints")) {
		printf("%s: run, %zu checkpoints\n", json_string_value(json_object_get(l->root, "path")),
		        json_array_size(json_object_get(l->root, "checkpoints")));
		str_free(&total);
		return;
	}
	printf("%s: %s%s%s, %" PRId64 " tensors, %" PRId64 " parameters, %" PRId64 " bytes (%s)\n",
	        json_string_value(json_object_get(l->root, "path")),
	        json_string_value(json_object_get(l->root, "kind")), type ? ", " : "", type ? type : "",
	        l->count, l->parameters, l->bytes, total.data ? total.data : "");
	str_free(&total);
}

int cli_inspect(const struct config *c)
{
	struct listing l = {0};
	int err = inspect(&l, c->path);

	if (!err && c->json) {
		json_object_set_new(l.root, "parameters", json_integer(l.parameters));
		json_object_set_new(l.root, "bytes", json_integer(l.bytes));
		json_object_set(l.root, "tensors", l.tensors);
		err = cli_print_json(l.root);
	} else if (!err) {
		print_listing(&l);
	}
	json_decref(l.tensors);
	json_decref(l.root);
	return err;
}
