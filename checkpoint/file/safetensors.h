/* The safetensors container: 8 bytes N, N bytes of JSON, then the tensors' bytes.
 *
 * Mental model. Opening a file reads only the header and checks it against the length of the file. After
 * that each tensor is a range of bytes inside the file, and safetensors_read copies from it with pread. If
 * the file shrinks meanwhile, that is an error, not a signal. ferry has its own scanner for the header. It
 * works in place, so a hostile header costs at most a few times its length, and every error names the byte.
 * The writer gets the list of all tensors first and then their bytes in that order, in pieces of any size.
 *
 * ferry also refuses, unlike the reference reader: names used twice, NUL in a string, unknown or repeated
 * fields, numbers that are not plain digits, more than SAFETENSORS_RANK_MAX dimensions, names longer than
 * SAFETENSORS_NAME_MAX_BYTES.
 *
 * Source: https://github.com/huggingface/safetensors ("Format").
 */
#ifndef FERRY_CHECKPOINT_FILE_SAFETENSORS_H
#define FERRY_CHECKPOINT_FILE_SAFETENSORS_H

#include "base/dtype.h"
#include "base/page_cache.h"

#include <stddef.h>
#include <stdint.h>

enum {
	SAFETENSORS_RANK_MAX = 8,
	SAFETENSORS_NAME_MAX_BYTES = 4096,
	SAFETENSORS_HEADER_MAX_BYTES = 100000000,
	SAFETENSORS_BLOCK_BYTES = 4 << 20, /* block of the writer's checksums */
};

/* The types of base/dtype.h; their names are those of this format. */
enum safetensors_dtype {
#define SAFETENSORS_ENUM(NAME, ...) SAFETENSORS_##NAME = DTYPE_##NAME,
	DTYPE_LIST(SAFETENSORS_ENUM)
#undef SAFETENSORS_ENUM
	        SAFETENSORS_DTYPE_COUNT
};

static inline const char *safetensors_dtype_name(enum safetensors_dtype dtype) /* "BF16" */
{
	return dtype_name((enum dtype)dtype);
}

static inline int safetensors_dtype_bits(enum safetensors_dtype dtype)
{
	return dtype_bits((enum dtype)dtype);
}

struct safetensors_tensor {
	const char *name; /* UTF-8 without NUL; owned by the file */
	int64_t shape[SAFETENSORS_RANK_MAX];
	int64_t count;                  /* elements; 1 if rank is 0 */
	int64_t begin_bytes, len_bytes; /* in the file, from its first byte */
	enum safetensors_dtype dtype;
	int rank;
};

struct safetensors_text {
	const char *key, *value;
};

struct safetensors {
	char *path;
	int fd;
	int64_t file_bytes, header_bytes;   /* header_bytes is N */
	struct safetensors_tensor *tensors; /* in the order of their bytes in the file */
	int64_t tensor_count;
	struct safetensors_text *metadata; /* by key */
	int64_t metadata_count;
	char *header;             /* decoded in place; holds all strings */
	int32_t *by_name;         /* tensor indices */
	struct page_cache *cache; /* state before the file was opened; NULL with safetensors_parse */
	int past_cache_fd;        /* -1: none; see shard_reader.h */
};

/* Opens and checks a regular file. ERR_INPUT "PATH: byte OFFSET: what", ERR_IO, ERR_NOMEM; *file is NULL
 * after an error. The descriptor stays open until close. Close keeps only those pages in the page cache that
 * were there before. */
int safetensors_open(struct safetensors **file, const char *path);
void safetensors_close(struct safetensors *file);

/* Makes the same checks for a header in memory, of a file of file_bytes. Takes ownership of `header`
 * (header_bytes long, mem_free), also on errors. Without a descriptor, tensors cannot be read. For
 * safetensors_open and fuzzing. */
int safetensors_parse(struct safetensors **file, const char *path, char *header, uint64_t header_bytes,
        uint64_t file_bytes);

/* NULL if the file has no such tensor. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);

/* Copies len_bytes of a tensor from its byte first_byte on. The range must be inside the tensor. ERR_IO. Any
 * thread. */
int safetensors_read(const struct safetensors *file, const struct safetensors_tensor *tensor, void *dst,
        int64_t first_byte, int64_t len_bytes);

/* "[2, 3]" for messages. */
struct safetensors_shape_text {
	char text[192];
};
struct safetensors_shape_text safetensors_shape_show(const int64_t *shape, int rank);

/* A name for messages: cut, control characters replaced. */
struct safetensors_name_text {
	char text[160];
};
struct safetensors_name_text safetensors_name_show(const char *name);

/* ---- writing ---- */

struct safetensors_decl {
	const char *name;
	enum safetensors_dtype dtype;
	int rank;
	int64_t shape[SAFETENSORS_RANK_MAX];
};

struct safetensors_writer;

/* Creates a file with the header of these tensors; metadata may be NULL with count 0. SAFETENSORS_HASHED
 * computes the XXH3 64 of every SAFETENSORS_BLOCK_BYTES of the file, header included; the last block is
 * shorter. */
enum safetensors_hashing { SAFETENSORS_PLAIN, SAFETENSORS_HASHED };
int safetensors_create(struct safetensors_writer **writer, const char *path,
        const struct safetensors_decl *tensors, int64_t tensor_count, const struct safetensors_text *metadata,
        int64_t metadata_count, enum safetensors_hashing hashing);

/* The same for a file that appears under `path` when it is finished, and replaces one that is there
 * (base/file.h). Removes what killed writers of it left. */
int safetensors_replace(struct safetensors_writer **writer, const char *path,
        const struct safetensors_decl *tensors, int64_t tensor_count, const struct safetensors_text *metadata,
        int64_t metadata_count);

/* Appends the next bytes of the data, tensor after tensor. */
int safetensors_append(struct safetensors_writer *writer, const void *src, size_t len_bytes);

/* Call after the last byte: writes the buffer, fsyncs, closes the file. A failure is final: remove the file
 * and write it again. */
int safetensors_finish(struct safetensors_writer *writer);

/* After finish: length and hashes of the file, valid until free. */
int64_t safetensors_writer_bytes(const struct safetensors_writer *writer);
const uint64_t *safetensors_writer_hashes(const struct safetensors_writer *writer, int64_t *block_count);

/* Also closes an unfinished file and leaves it on the disk, unless safetensors_replace began it. NULL is
 * allowed. */
void safetensors_writer_free(struct safetensors_writer *writer);

#endif
