/* Writes safetensors files. */
#include "checkpoint/file/safetensors.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/str.h"
#include "checkpoint/file/block_writer.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

struct safetensors_writer {
	struct block_writer *blocks;
	char *path, *part; /* of safetensors_replace; part NULL: placed, or none */
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

/* Adds the entry of one tensor, and moves *at from its begin to its end. */
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

/* Makes the header's text, padded with spaces so that the data is aligned to 8. *data_bytes is the length of
 * the data. */
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
	err = compose_header(&header, &data_bytes, tensors, tensor_count, metadata, metadata_count);
	if (err) {
		err_note(err, "%s", path);
		goto out;
	}
	err = block_writer_open(&writer->blocks, path, (int64_t)(8 + header.len_bytes + data_bytes),
	        hashing == SAFETENSORS_HASHED ? BLOCK_HASHING_ON : BLOCK_HASHING_OFF);
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

int safetensors_replace(struct safetensors_writer **out, const char *path,
        const struct safetensors_decl *tensors, int64_t tensor_count, const struct safetensors_text *metadata,
        int64_t metadata_count)
{
	char *part, *own = mem_strdup(path);
	int err;

	*out = NULL;
	file_clean_parts_of(path);
	part = file_part_name(path);
	err = own && part ? safetensors_create(out, part, tensors, tensor_count, metadata, metadata_count,
	                            SAFETENSORS_PLAIN)
	                  : ERR_NOMEM;
	if (err) {
		if (part)
			file_part_remove(part);
		mem_free(part);
		mem_free(own);
		return err;
	}
	(*out)->path = own;
	(*out)->part = part;
	return 0;
}

int safetensors_append(struct safetensors_writer *writer, const void *src, size_t len_bytes)
{
	return block_writer_append(writer->blocks, src, (int64_t)len_bytes);
}

int safetensors_finish(struct safetensors_writer *writer)
{
	int err = block_writer_finish(writer->blocks);

	if (err || !writer->part)
		return err;
	err = file_part_place(writer->part, writer->path);
	mem_free(writer->part);
	writer->part = NULL;
	return err;
}

int64_t safetensors_writer_bytes(const struct safetensors_writer *writer)
{
	return block_writer_bytes(writer->blocks);
}

const uint64_t *safetensors_writer_hashes(const struct safetensors_writer *writer, int64_t *block_count)
{
	return block_writer_hashes(writer->blocks, block_count);
}

void safetensors_writer_free(struct safetensors_writer *writer)
{
	if (!writer)
		return;
	block_writer_free(writer->blocks);
	if (writer->part)
		file_part_remove(writer->part);
	mem_free(writer->part);
	mem_free(writer->path);
	mem_free(writer);
}
