/* Computes and compares the checksums of a file's blocks. */
#include "checkpoint/manifest.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "checkpoint/file/hash.h"
#include "checkpoint/file/safetensors.h"

#include <inttypes.h>

/* Reads one file block by block. */
struct block_reader {
	char *path;
	unsigned char *block;
	int fd;
	int64_t len_bytes, at_bytes;
};

static int reader_open(struct block_reader *reader, const char *dir, const char *name)
{
	*reader = (struct block_reader){.fd = -1};
	reader->path = file_join(dir, name);
	if (!reader->path)
		return ERR_NOMEM;
	reader->fd = file_open_read(reader->path, &reader->len_bytes);
	if (reader->fd < 0)
		return reader->fd;
	reader->block = mem_alloc(
	        (size_t)min_i64(reader->len_bytes, SAFETENSORS_BLOCK_BYTES) + 1, 1); /* 1: also for none */
	return reader->block ? 0 : ERR_NOMEM;
}

static void reader_close(struct block_reader *reader)
{
	if (reader->fd >= 0)
		file_abandon(reader->fd, reader->path);
	mem_free(reader->path);
	mem_free(reader->block);
}

/* Gets the next block's checksum and length. */
static int reader_next(struct block_reader *reader, uint64_t *hash, size_t *part)
{
	int64_t left = reader->len_bytes - reader->at_bytes;
	int err;

	*part = (size_t)(left < SAFETENSORS_BLOCK_BYTES ? left : SAFETENSORS_BLOCK_BYTES);
	err = file_read_at(reader->fd, reader->path, reader->block, *part, reader->at_bytes);
	if (err)
		return err;
	*hash = hash_kernels()->of(reader->block, *part);
	reader->at_bytes += (int64_t)*part;
	return 0;
}

int manifest_verify_file(const char *dir, const struct manifest_file *file)
{
	struct block_reader reader;
	uint64_t hash;
	size_t part;
	int err = reader_open(&reader, dir, file->name);

	if (!err && reader.len_bytes != file->len_bytes)
		err = err_set(ERR_INPUT, "%s: byte %" PRId64 ": it has %" PRId64 " bytes, not %" PRId64,
		        reader.path, reader.len_bytes < file->len_bytes ? reader.len_bytes : file->len_bytes,
		        reader.len_bytes, file->len_bytes);
	for (int64_t b = 0; !err && b < file->block_count; b++) {
		err = reader_next(&reader, &hash, &part);
		if (!err && hash != file->hashes[b])
			err = err_set(ERR_INPUT,
			        "%s: byte %" PRId64 ": the %zu bytes from here differ from what was saved",
			        reader.path, b * SAFETENSORS_BLOCK_BYTES, part);
	}
	reader_close(&reader);
	return err;
}

int manifest_hash_file(const char *dir, struct manifest_file *file)
{
	struct block_reader reader;
	size_t part;
	int err = reader_open(&reader, dir, file->name);

	if (!err) {
		file->len_bytes = reader.len_bytes;
		file->block_count = (file->len_bytes + SAFETENSORS_BLOCK_BYTES - 1) / SAFETENSORS_BLOCK_BYTES;
		file->hashes = mem_alloc((size_t)file->block_count, sizeof(*file->hashes));
		err = file->hashes ? 0 : ERR_NOMEM;
	}
	for (int64_t b = 0; !err && b < file->block_count; b++)
		err = reader_next(&reader, &file->hashes[b], &part);
	reader_close(&reader);
	return err;
}
