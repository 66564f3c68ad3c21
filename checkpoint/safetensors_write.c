#include "checkpoint/safetensors.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/str.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

struct safetensors_writer {
	char *path;
	int fd;
	unsigned char *block; /* SAFETENSORS_BLOCK_BYTES, not yet written */
	int64_t filled_bytes, written_bytes, total_bytes;
	uint64_t *hashes; /* NULL: not wanted */
	int64_t hash_count;
};

static void add_string(struct str *out, const char *text)
{
	str_add_char(out, '"');
	for (const char *c = text; *c; c++) {
		if (*c == '"' || *c == '\\')
			str_printf(out, "\\%c", *c);
		else if ((unsigned char)*c < ' ')
			str_printf(out, "\\u%04x", *c);
		else
			str_add_char(out, *c);
	}
	str_add_char(out, '"');
}

static void add_metadata(struct str *out, const struct safetensors_text *metadata, int64_t metadata_count)
{
	str_add(out, "\"__metadata__\":{");
	for (int64_t i = 0; i < metadata_count; i++) {
		if (i)
			str_add_char(out, ',');
		add_string(out, metadata[i].key);
		str_add_char(out, ':');
		add_string(out, metadata[i].value);
	}
	str_add_char(out, '}');
}

/* One entry; *at moves from its begin to its end. */
static int add_tensor(struct str *out, const struct safetensors_decl *tensor, uint64_t *at)
{
	uint64_t bytes = (uint64_t)safetensors_dtype_bits(tensor->dtype), end;

	assert(bytes % 8 == 0 && tensor->rank <= SAFETENSORS_RANK_MAX);
	bytes /= 8;
	for (int i = 0; i < tensor->rank; i++) {
		if (size_mul(&bytes, bytes, (uint64_t)tensor->shape[i]))
			return err_note(ERR_RANGE, "tensor %s", tensor->name);
	}
	if (size_add(&end, *at, bytes) || end > INT64_MAX / 2)
		return err_note(ERR_RANGE, "tensor %s", tensor->name);
	add_string(out, tensor->name);
	str_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_dtype_name(tensor->dtype));
	for (int i = 0; i < tensor->rank; i++)
		str_printf(out, "%s%" PRId64, i ? "," : "", tensor->shape[i]);
	str_printf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *at, end);
	*at = end;
	return 0;
}

/* The header's text, padded with spaces so that the data is aligned to 8, and the bytes of data. */
static int compose_header(struct str *out, uint64_t *data_bytes, const struct safetensors_decl *tensors,
        int64_t tensor_count, const struct safetensors_text *metadata, int64_t metadata_count)
{
	*data_bytes = 0;
	str_add_char(out, '{');
	if (metadata_count)
		add_metadata(out, metadata, metadata_count);
	for (int64_t i = 0; i < tensor_count; i++) {
		int err;

		if (i || metadata_count)
			str_add_char(out, ',');
		err = add_tensor(out, &tensors[i], data_bytes);
		if (err)
			return err;
	}
	str_add_char(out, '}');
	while (out->len_bytes % 8 && !out->broken)
		str_add_char(out, ' ');
	if (out->len_bytes > SAFETENSORS_HEADER_MAX_BYTES)
		return err_set(
		        ERR_RANGE, "a header of %zu bytes is more than the format allows", out->len_bytes);
	return str_check(out);
}

static int open_writer(struct safetensors_writer *writer, const char *path, enum safetensors_hashing hashing)
{
	int64_t blocks = (writer->total_bytes + SAFETENSORS_BLOCK_BYTES - 1) / SAFETENSORS_BLOCK_BYTES;

	writer->path = mem_strdup(path);
	writer->block = mem_alloc(SAFETENSORS_BLOCK_BYTES, 1);
	if (hashing == SAFETENSORS_HASHED)
		writer->hashes = mem_alloc((size_t)blocks, sizeof(*writer->hashes));
	if (!writer->path || !writer->block || (hashing == SAFETENSORS_HASHED && !writer->hashes))
		return ERR_NOMEM;
	writer->fd = file_create(path);
	return writer->fd < 0 ? writer->fd : 0;
}

/* Up to a whole block goes out, and its hash is kept. */
static int flush(struct safetensors_writer *writer)
{
	int err = file_write_at(
	        writer->fd, writer->path, writer->block, (size_t)writer->filled_bytes, writer->written_bytes);

	if (err)
		return err;
	if (writer->hashes)
		writer->hashes[writer->hash_count++] =
		        XXH3_64bits(writer->block, (size_t)writer->filled_bytes);
	writer->written_bytes += writer->filled_bytes;
	writer->filled_bytes = 0;
	return 0;
}

int safetensors_create(struct safetensors_writer **out, const char *path,
        const struct safetensors_decl *tensors, int64_t tensor_count, const struct safetensors_text *metadata,
        int64_t metadata_count, enum safetensors_hashing hashing)
{
	struct safetensors_writer *writer = mem_alloc(1, sizeof(*writer));
	unsigned char length[8];
	struct str header = {0};
	uint64_t data_bytes;
	int err;

	*out = NULL;
	if (!writer)
		return ERR_NOMEM;
	writer->fd = -1;
	err = compose_header(&header, &data_bytes, tensors, tensor_count, metadata, metadata_count);
	if (err) {
		err_note(err, "%s", path);
		goto out;
	}
	writer->total_bytes = (int64_t)(8 + header.len_bytes + data_bytes);
	err = open_writer(writer, path, hashing);
	if (err)
		goto out;
	for (int i = 0; i < 8; i++)
		length[i] = (unsigned char)((uint64_t)header.len_bytes >> 8 * i);
	err = safetensors_append(writer, length, 8);
	if (!err)
		err = safetensors_append(writer, header.data, header.len_bytes);
out:
	str_free(&header);
	if (err)
		safetensors_writer_free(writer);
	else
		*out = writer;
	return err;
}

int safetensors_append(struct safetensors_writer *writer, const void *src, size_t len_bytes)
{
	const unsigned char *at = src;
	int err = 0;

	assert((int64_t)len_bytes <= writer->total_bytes - writer->written_bytes - writer->filled_bytes);
	while (!err && len_bytes) {
		size_t room = (size_t)(SAFETENSORS_BLOCK_BYTES - writer->filled_bytes);
		size_t part = len_bytes < room ? len_bytes : room;

		memcpy(writer->block + writer->filled_bytes, at, part);
		writer->filled_bytes += (int64_t)part;
		at += part;
		len_bytes -= part;
		if (writer->filled_bytes == SAFETENSORS_BLOCK_BYTES)
			err = flush(writer);
	}
	return err;
}

int safetensors_finish(struct safetensors_writer *writer)
{
	int err = writer->filled_bytes ? flush(writer) : 0, closed;

	if (!err && writer->written_bytes != writer->total_bytes)
		err = err_set(ERR_INTERNAL, "%s: %" PRId64 " of %" PRId64 " bytes were given", writer->path,
		        writer->written_bytes, writer->total_bytes);
	if (!err)
		err = file_sync(writer->fd, writer->path);
	if (err)
		return err;
	closed = file_close(writer->fd, writer->path);
	writer->fd = -1;
	return closed;
}

int64_t safetensors_writer_bytes(const struct safetensors_writer *writer)
{
	return writer->total_bytes;
}

const uint64_t *safetensors_writer_hashes(const struct safetensors_writer *writer, int64_t *block_count)
{
	*block_count = writer->hash_count;
	return writer->hashes;
}

void safetensors_writer_free(struct safetensors_writer *writer)
{
	if (!writer)
		return;
	if (writer->fd >= 0)
		file_abandon(writer->fd, writer->path);
	mem_free(writer->block);
	mem_free(writer->hashes);
	mem_free(writer->path);
	mem_free(writer);
}
