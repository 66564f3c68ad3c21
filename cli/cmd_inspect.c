/* ferry inspect: shows the contents of a file or directory, from headers alone. */
#include "cli/cli.h"

#include "base/quantity.h"
#include "checkpoint/file/safetensors.h"
#include "checkpoint/inspect.h"

#include <inttypes.h>

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

static int64_t int_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static void print_tensor(const json_t *tensor)
{
	struct str shape = {0}, bytes = {0};
	const json_t *dims = json_object_get(tensor, "shape");

	str_add_char(&shape, '[');
	for (size_t i = 0; i < json_array_size(dims); i++)
		str_printf(&shape, "%s%lld", i ? ", " : "",
		        (long long)json_integer_value(json_array_get(dims, i)));
	str_add_char(&shape, ']');
	quantity_bytes(&bytes, int_of(tensor, "bytes"));
	printf("%-5s %-18s %10s  %s\n", text_of(tensor, "dtype"), shape.data ? shape.data : "",
	        bytes.data ? bytes.data : "", safetensors_name_show(text_of(tensor, "name")).text);
	str_free(&shape);
	str_free(&bytes);
}

static void print_checkpoint_of_run(const json_t *checkpoint)
{
	struct str bytes = {0};
	int whole = json_is_true(json_object_get(checkpoint, "whole"));

	quantity_bytes(&bytes, int_of(checkpoint, "bytes"));
	printf("step %-8" PRId64 " %10s  %s%s%s\n", int_of(checkpoint, "step"), bytes.data ? bytes.data : "",
	        text_of(checkpoint, "path"),
	        whole ? "" : "  incomplete: ", whole ? "" : text_of(checkpoint, "error"));
	str_free(&bytes);
}

static void print_state(const json_t *root)
{
	const json_t *value;
	size_t i;

	printf("step %" PRId64 ", written by %" PRId64 " rank%s; holds", int_of(root, "step"),
	        int_of(root, "world_size"), int_of(root, "world_size") == 1 ? "" : "s");
	json_array_foreach(json_object_get(root, "planes"), i, value) printf(" %s", json_string_value(value));
	printf("; optimizer state %s\n", text_of(root, "optimizer_state"));
}

static void print_run(const char *path, const json_t *root)
{
	const json_t *checkpoints = json_object_get(root, "checkpoints"), *value;
	size_t i;

	json_array_foreach(checkpoints, i, value) print_checkpoint_of_run(value);
	if (json_is_string(json_object_get(root, "model")))
		printf("result: %s\n", text_of(root, "model"));
	printf("%s: output directory of a run, %zu checkpoint%s\n", path, json_array_size(checkpoints),
	        json_array_size(checkpoints) == 1 ? "" : "s");
}

static void print_tensors(const char *path, const json_t *root)
{
	const json_t *tensors = json_object_get(root, "tensors"), *value;
	const char *type = text_of(root, "model_type"), *key;
	struct str total = {0};
	size_t i;

	json_array_foreach(tensors, i, value) print_tensor(value);
	json_object_foreach(json_object_get(root, "metadata"), key, value) printf("metadata %s: %s\n",
	        safetensors_name_show(key).text, safetensors_name_show(json_string_value(value)).text);
	json_array_foreach(json_object_get(root, "files"), i, value) if (json_is_object(value))
	        printf("file %s: %" PRId64 " bytes\n", text_of(value, "name"), int_of(value, "bytes"));
	if (json_object_get(root, "planes")) {
		print_state(root);
		printf("bytes of a tensor: fp32 weight and optimizer state\n");
	}
	quantity_bytes(&total, int_of(root, "bytes"));
	printf("%s: %s%s%s, %zu tensors, %" PRId64 " parameters, %" PRId64 " bytes (%s)\n", path,
	        text_of(root, "kind"), *type ? ", " : "", type, json_array_size(tensors),
	        int_of(root, "parameters"), int_of(root, "bytes"), total.data ? total.data : "");
	str_free(&total);
}

int cli_inspect(const struct config *c)
{
	json_t *root = NULL;
	int err = inspect_path(&root, c->path);

	if (!err && c->json)
		err = cli_print_json(root);
	else if (!err && json_object_get(root, "checkpoints"))
		print_run(c->path, root);
	else if (!err)
		print_tensors(c->path, root);
	json_decref(root);
	return err;
}
