/* Changes adapters on disk: adapter_config.json, and the names and tensors of adapter_model.safetensors. */
#ifndef FERRY_TESTS_ADAPTER_FILE_H
#define FERRY_TESTS_ADAPTER_FILE_H

#include "tests/run_fixture.h"

struct adapter_file {
	char path[400];
	json_t *header;
	struct str data;
};

static inline void adapter_open(struct adapter_file *f, const char *dir)
{
	size_t len;
	uint64_t head;
	char *text;

	snprintf(f->path, sizeof(f->path), "%s/%s/adapter_model.safetensors", work_dir, dir);
	text = read_file(f->path, &len);
	memcpy(&head, text, 8);
	f->header = json_loadb(text + 8, head, 0, NULL);
	assert_non_null(f->header);
	f->data = (struct str){0};
	str_add_bytes(&f->data, text + 8 + head, len - 8 - head);
	mem_free(text);
}

/* Writes the file again. */
static inline void adapter_close(struct adapter_file *f)
{
	char *head = json_dumps(f->header, JSON_COMPACT);
	uint64_t len = (strlen(head) + 7) / 8 * 8;
	struct str all = {0};

	str_add_bytes(&all, (const char *)&len, 8);
	str_printf(&all, "%-*s", (int)len, head);
	if (f->data.len_bytes)
		str_add_bytes(&all, f->data.data, f->data.len_bytes);
	assert_int_equal(file_write_all(f->path, all.data, all.len_bytes), 0);
	str_free(&all);
	str_free(&f->data);
	free(head);
	json_decref(f->header);
}

/* Adds an fp32 tensor of these sizes (columns 0: a vector), each element `value`. */
static inline void adapter_add(
        struct adapter_file *f, const char *name, int64_t rows, int64_t columns, float value)
{
	int64_t count = rows * (columns ? columns : 1);
	json_int_t begin = (json_int_t)f->data.len_bytes;
	json_t *shape = columns ? json_pack("[I,I]", (json_int_t)rows, (json_int_t)columns)
	                        : json_pack("[I]", (json_int_t)rows);

	for (int64_t i = 0; i < count; i++)
		str_add_bytes(&f->data, (const char *)&value, sizeof(value));
	json_object_set_new(f->header, name,
	        json_pack("{s:s,s:o,s:[I,I]}", "dtype", "F32", "shape", shape, "data_offsets", begin,
	                (json_int_t)f->data.len_bytes));
}

/* Sets all elements of an fp32 tensor. */
static inline void adapter_fill(struct adapter_file *f, const char *name, float value)
{
	const json_t *offsets = json_object_get(json_object_get(f->header, name), "data_offsets");
	json_int_t begin = json_integer_value(json_array_get(offsets, 0));
	json_int_t end = json_integer_value(json_array_get(offsets, 1));

	assert_true(end > begin);
	for (json_int_t at = begin; at < end; at += 4)
		memcpy(f->data.data + at, &value, 4);
}

/* Gives each tensor with `old` in its name that name with `new` there instead. */
static inline void adapter_rename(struct adapter_file *f, const char *old, const char *new)
{
	json_t *renamed = json_object(), *value;
	const char *name;
	int found = 0;

	json_object_foreach(f->header, name, value)
	{
		const char *at = strstr(name, old);
		char to[300];

		found |= at != NULL;
		snprintf(to, sizeof(to), "%.*s%s%s", (int)(at ? at - name : 0), name, at ? new : "",
		        at ? at + strlen(old) : name);
		json_object_set(renamed, to, value);
	}
	assert_true(found);
	json_decref(f->header);
	f->header = renamed;
}

static inline void adapter_set(const char *dir, const char *key, json_t *value)
{
	char path[400], *text;
	json_t *config;

	snprintf(path, sizeof(path), "%s/%s/adapter_config.json", work_dir, dir);
	assert_int_equal(json_read_file(&config, path, 1 << 20), 0);
	json_object_set_new(config, key, value);
	text = json_dumps(config, JSON_INDENT(2));
	assert_int_equal(file_write_all(path, text, strlen(text)), 0);
	free(text);
	json_decref(config);
}

#endif
