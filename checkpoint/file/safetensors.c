/* Opens safetensors files and finds tensors in them. */
#include "checkpoint/file/safetensors.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/file/safetensors_header.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct safetensors_shape_text safetensors_shape_show(const int64_t *shape, int rank)
{
	struct safetensors_shape_text out = {"["};
	size_t at = 1;

	for (int i = 0; i < rank; i++)
		at += (size_t)snprintf(
		        out.text + at, sizeof(out.text) - at, "%s%" PRId64, i ? ", " : "", shape[i]);
	snprintf(out.text + at, sizeof(out.text) - at, "]");
	return out;
}

struct safetensors_name_text safetensors_name_show(const char *name)
{
	struct safetensors_name_text out;

	snprintf(out.text, sizeof(out.text), strlen(name) < sizeof(out.text) ? "%s" : "%.150s...", name);
	for (char *c = out.text; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = '?';
	}
	return out;
}

static int compare_names(const void *a, const void *b, void *context)
{
	const struct safetensors_tensor *tensors = context;

	return strcmp(tensors[*(const int32_t *)a].name, tensors[*(const int32_t *)b].name);
}

static int compare_ranges(const void *a, const void *b)
{
	const struct safetensors_tensor *left = a, *right = b;

	if (left->begin_bytes != right->begin_bytes)
		return left->begin_bytes < right->begin_bytes ? -1 : 1;
	if (left->len_bytes != right->len_bytes)
		return left->len_bytes < right->len_bytes ? -1 : 1;
	return left->name < right->name ? -1 : left->name > right->name; /* in the order of the header */
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(((const struct safetensors_text *)a)->key, ((const struct safetensors_text *)b)->key);
}

/* Sorts tensors by place and metadata by key. Refuses duplicate names. */
static int order_names(struct safetensors *file)
{
	if (file->tensor_count > INT32_MAX)
		return safetensors_header_fail(file, file->header, "more than 2^31 tensors");
	if (file->tensor_count)
		qsort(file->tensors, (size_t)file->tensor_count, sizeof(*file->tensors), compare_ranges);
	if (file->metadata_count)
		qsort(file->metadata, (size_t)file->metadata_count, sizeof(*file->metadata), compare_keys);
	file->by_name = mem_alloc((size_t)file->tensor_count, sizeof(*file->by_name));
	if (!file->by_name)
		return err_note(ERR_NOMEM, "%s", file->path);
	for (int64_t i = 0; i < file->tensor_count; i++)
		file->by_name[i] = (int32_t)i;
	qsort_r(file->by_name, (size_t)file->tensor_count, sizeof(*file->by_name), compare_names,
	        file->tensors);
	for (int64_t i = 1; i < file->tensor_count; i++) {
		const char *a = file->tensors[file->by_name[i - 1]].name;
		const char *b = file->tensors[file->by_name[i]].name;

		if (!strcmp(a, b))
			return safetensors_header_fail(file, a > b ? a : b, "tensor \"%s\" appears twice",
			        safetensors_name_show(a).text);
	}
	for (int64_t i = 1; i < file->metadata_count; i++) {
		const char *a = file->metadata[i - 1].key, *b = file->metadata[i].key;

		if (!strcmp(a, b))
			return safetensors_header_fail(file, a > b ? a : b,
			        "key \"%s\" of __metadata__ appears twice", safetensors_name_show(a).text);
	}
	return 0;
}

/* Checks that the ranges tile the file from the end of the header to its last byte. Turns them into offsets
 * in the file. */
static int check_tiling(struct safetensors *file)
{
	int64_t data = 8 + file->header_bytes, at = 0;

	for (int64_t i = 0; i < file->tensor_count; i++) {
		struct safetensors_tensor *tensor = &file->tensors[i];

		if (tensor->begin_bytes != at)
			return safetensors_header_fail(file, tensor->name,
			        "tensor \"%s\" begins at data byte %" PRId64
			        ", the ones before it end at %" PRId64,
			        safetensors_name_show(tensor->name).text, tensor->begin_bytes, at);
		at += tensor->len_bytes; /* end of data_offsets: no overflow */
		if (at > file->file_bytes - data)
			return safetensors_header_fail(file, tensor->name,
			        "tensor \"%s\" ends at data byte %" PRId64 ", the file at %" PRId64
			        " (it was cut off, or is still being written)",
			        safetensors_name_show(tensor->name).text, at, file->file_bytes - data);
		tensor->begin_bytes += data;
	}
	if (data + at != file->file_bytes)
		return err_set(ERR_INPUT, "%s: byte %" PRId64 ": %" PRId64 " bytes that belong to no tensor",
		        file->path, data + at, file->file_bytes - data - at);
	return 0;
}

int safetensors_parse(
        struct safetensors **out, const char *path, char *header, uint64_t header_bytes, uint64_t file_bytes)
{
	struct safetensors *file = mem_alloc(1, sizeof(*file));
	int err = ERR_NOMEM;

	*out = NULL;
	if (!file) {
		mem_free(header);
		return err_note(ERR_NOMEM, "%s", path);
	}
	file->fd = file->past_cache_fd = -1;
	file->header = header;
	file->header_bytes = (int64_t)header_bytes;
	file->file_bytes = (int64_t)file_bytes;
	file->path = mem_strdup(path);
	if (file->path)
		err = safetensors_header_scan(file);
	if (!err)
		err = order_names(file);
	if (!err)
		err = check_tiling(file);
	if (err) {
		safetensors_close(file);
		return err;
	}
	*out = file;
	return 0;
}

static uint64_t little_u64(const unsigned char *bytes)
{
	uint64_t value = 0;

	for (int i = 7; i >= 0; i--)
		value = value << 8 | bytes[i];
	return value;
}

/* Explains a file with an impossible header length. */
static int not_safetensors(int fd, const char *path, int64_t file_bytes, uint64_t n)
{
	char text[24] = "";
	size_t len_bytes = file_bytes < (int64_t)sizeof(text) ? (size_t)file_bytes : sizeof(text);
	int err = file_read_at(fd, path, text, len_bytes, 0);

	if (err)
		return err;
	if (file_is_lfs_pointer(text, len_bytes))
		return err_set(ERR_INPUT,
		        "%s: this is a git-lfs pointer instead of the file; run git lfs pull", path);
	if (*text == '{' && text[1] != 0)
		return err_set(ERR_INPUT,
		        "%s: this is JSON, not a safetensors file; to show rows, run ferry data show", path);
	return err_set(ERR_INPUT,
	        "%s: byte 0: a header of %" PRIu64
	        " bytes is more than the %d allowed; not a safetensors file?",
	        path, n, SAFETENSORS_HEADER_MAX_BYTES);
}

static int read_header_length(int fd, const char *path, int64_t file_bytes, uint64_t *header_bytes)
{
	unsigned char first[8];
	uint64_t n;
	int err;

	if (file_bytes < 8)
		return err_set(ERR_INPUT,
		        "%s: byte %" PRId64 ": the file ends before the 8 bytes of the header's length", path,
		        file_bytes);
	err = file_read_at(fd, path, first, 8, 0);
	if (err)
		return err;
	n = little_u64(first);
	if (n > SAFETENSORS_HEADER_MAX_BYTES)
		return not_safetensors(fd, path, file_bytes, n);
	if ((int64_t)n > file_bytes - 8)
		return err_set(ERR_INPUT,
		        "%s: byte 0: a header of %" PRIu64 " bytes in a file of %" PRId64
		        " (it was cut off, or is not a safetensors file)",
		        path, n, file_bytes);
	*header_bytes = n;
	return 0;
}

int safetensors_open(struct safetensors **file, const char *path)
{
	struct page_cache *cache = NULL;
	uint64_t header_bytes = 0;
	int64_t file_bytes = 0;
	char *header = NULL;
	int fd, err;

	*file = NULL;
	fd = file_open_read(path, &file_bytes);
	if (fd < 0)
		return fd;
	err = page_cache_open(&cache, fd, file_bytes);
	if (!err)
		err = read_header_length(fd, path, file_bytes, &header_bytes);
	if (err)
		goto out;
	header = mem_alloc(header_bytes, 1);
	if (!header) {
		err = err_note(ERR_NOMEM, "%s", path);
		goto out;
	}
	err = file_read_at(fd, path, header, header_bytes, 8);
	if (err)
		goto out;
	err = safetensors_parse(file, path, header, header_bytes, (uint64_t)file_bytes);
	header = NULL;
	if (!err) {
		(*file)->fd = fd;
		(*file)->cache = cache;
		return 0;
	}
out:
	mem_free(header);
	page_cache_restore(cache, 0, file_bytes);
	page_cache_close(cache);
	file_abandon(fd, path);
	return err;
}

void safetensors_close(struct safetensors *file)
{
	if (!file)
		return;
	page_cache_restore(file->cache, 0, file->file_bytes);
	page_cache_close(file->cache);
	if (file->fd >= 0)
		file_abandon(file->fd, file->path ? file->path : "");
	if (file->past_cache_fd >= 0)
		file_abandon(file->past_cache_fd, file->path ? file->path : "");
	mem_free(file->tensors);
	mem_free(file->metadata);
	mem_free(file->by_name);
	mem_free(file->header);
	mem_free(file->path);
	mem_free(file);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
	int64_t low = 0, high = file->tensor_count;

	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		const struct safetensors_tensor *tensor = &file->tensors[file->by_name[middle]];
		int order = strcmp(name, tensor->name);

		if (!order)
			return tensor;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

int safetensors_read(const struct safetensors *file, const struct safetensors_tensor *tensor, void *dst,
        int64_t first_byte, int64_t len_bytes)
{
	int err;

	assert(first_byte >= 0 && len_bytes >= 0 && first_byte <= tensor->len_bytes - len_bytes);
	err = file_read_at(file->fd, file->path, dst, (size_t)len_bytes, tensor->begin_bytes + first_byte);
	if (err)
		err_note(err, "tensor %s", safetensors_name_show(tensor->name).text);
	return err;
}
