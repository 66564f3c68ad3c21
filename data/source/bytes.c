/* Reads a file in sequence, and decompresses it with zlib or libzstd. */
#include "data/source/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

enum { BUFFER_BYTES = 1 << 18, MAGIC_BYTES = 6 };
enum packing { PACKING_NONE, PACKING_GZIP, PACKING_ZSTD };

struct bytes {
	char *path;
	int fd;
	enum packing packing;
	uint8_t *buffer; /* [start, end): read from the file and not yet used */
	size_t start, end;
	int64_t position;
	int file_ended, in_frame; /* in_frame: a member or frame has begun and has not ended */
	z_stream zlib;
	int zlib_open;
	ZSTD_DCtx *zstd;
	char peeked[BYTES_PEEK_MAX]; /* [peeked_start, peeked_end): bytes_read returns these first */
	size_t peeked_start, peeked_end;
};

/* First bytes of compressed files. Those with `refused` are not supported. */
static const struct magic {
	const char *bytes;
	size_t len_bytes;
	enum packing packing;
	const char *refused, *remedy;
} magics[] = {
        {"\x1f\x8b", 2, PACKING_GZIP, NULL, NULL},
        {"\x28\xb5\x2f\xfd", 4, PACKING_ZSTD, NULL, NULL},
        {"BZh", 3, PACKING_NONE, "bzip2", "unpack it with bunzip2"},
        {"\xfd\x37zXZ", 5, PACKING_NONE, "xz", "unpack it with unxz"},
        {"\x04\x22\x4d\x18", 4, PACKING_NONE, "lz4", "unpack it with unlz4"},
        {"PK\x03\x04", 4, PACKING_NONE, "zip", "unpack it with unzip"},
};

/* Reads more after the bytes in the buffer. Sets file_ended at the end. */
static int refill(struct bytes *b)
{
	ssize_t got;

	if (b->start > 0) {
		memmove(b->buffer, b->buffer + b->start, b->end - b->start);
		b->end -= b->start;
		b->start = 0;
	}
	while (b->end < BUFFER_BYTES && !b->file_ended) {
		got = read(b->fd, b->buffer + b->end, BUFFER_BYTES - b->end);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set(ERR_IO, "%s: %s", b->path, strerror(errno));
		b->end += (size_t)got;
		b->position += got;
		b->file_ended = got == 0;
		if (b->end >= MAGIC_BYTES)
			break;
	}
	return 0;
}

static int find_packing(struct bytes *b)
{
	for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
		const struct magic *m = &magics[i];

		if (b->end < m->len_bytes || memcmp(b->buffer, m->bytes, m->len_bytes) != 0)
			continue;
		if (m->refused)
			return err_set(ERR_UNSUPPORTED,
			        "%s: compressed with %s; %s (ferry reads .gz and .zst)", b->path, m->refused,
			        m->remedy);
		b->packing = m->packing;
	}
	if (b->packing == PACKING_GZIP) {
		if (inflateInit2(&b->zlib, 15 + 16) != Z_OK)
			return err_set(ERR_NOMEM, "out of memory");
		b->zlib_open = 1;
	}
	if (b->packing == PACKING_ZSTD) {
		b->zstd = ZSTD_createDCtx();
		if (!b->zstd)
			return err_set(ERR_NOMEM, "out of memory");
	}
	return 0;
}

/* Opens a file or a named pipe, as of <(command). file_open_read takes files only, and a pipe may wait for
 * its writer. */
static int open_any(const char *path)
{
	struct stat st;
	int fd;

	if (strcmp(path, "-") == 0)
		return STDIN_FILENO;
	if (stat(path, &st) < 0 || !S_ISFIFO(st.st_mode))
		return file_open_read(path, NULL);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 ? fd : err_set(ERR_INPUT, "%s: %s", path, strerror(errno));
}

int bytes_open(struct bytes **out, const char *path)
{
	struct bytes *b = mem_alloc(1, sizeof(*b));
	int rc = 0;

	*out = NULL;
	if (!b)
		return ERR_NOMEM;
	b->fd = -1;
	b->path = mem_strdup(strcmp(path, "-") == 0 ? "standard input" : path);
	b->buffer = mem_alloc(BUFFER_BYTES, 1);
	if (!b->path || !b->buffer)
		rc = ERR_NOMEM;
	else
		rc = b->fd = open_any(path);
	if (rc >= 0)
		rc = refill(b);
	if (rc >= 0)
		rc = find_packing(b);
	if (rc < 0) {
		bytes_close(b);
		return rc;
	}
	*out = b;
	return 0;
}

void bytes_close(struct bytes *b)
{
	if (!b)
		return;
	if (b->fd > STDERR_FILENO)
		close(b->fd);
	if (b->zlib_open)
		inflateEnd(&b->zlib);
	ZSTD_freeDCtx(b->zstd);
	mem_free(b->buffer);
	mem_free(b->path);
	mem_free(b);
}

static int damaged(const struct bytes *b, const char *how)
{
	return err_set(ERR_INPUT, "%s: damaged %s data: %s", b->path,
	        b->packing == PACKING_GZIP ? "gzip" : "zstd", how);
}

/* Calls zlib once, from the buffer to dst. Returns the number of bytes, which may be 0. */
static int64_t inflate_some(struct bytes *b, void *dst, size_t len_bytes)
{
	int rc;

	if (!b->in_frame) {
		/* zeros after a member are padding (from tapes): gzip ignores them, too */
		while (b->start < b->end && b->buffer[b->start] == 0)
			b->start++;
		if (b->start == b->end)
			return 0;
		inflateReset(&b->zlib);
		b->in_frame = 1;
	}
	b->zlib.next_in = b->buffer + b->start;
	b->zlib.avail_in = (unsigned)(b->end - b->start);
	b->zlib.next_out = dst;
	b->zlib.avail_out = len_bytes < UINT_MAX ? (unsigned)len_bytes : UINT_MAX;
	len_bytes = b->zlib.avail_out;
	rc = inflate(&b->zlib, Z_NO_FLUSH);
	b->start = b->end - b->zlib.avail_in;
	if (rc == Z_STREAM_END)
		b->in_frame = 0;
	else if (rc != Z_OK && rc != Z_BUF_ERROR)
		return damaged(b, b->zlib.msg ? b->zlib.msg : "it cannot be unpacked");
	return (int64_t)(len_bytes - b->zlib.avail_out);
}

static int64_t unzstd_some(struct bytes *b, void *dst, size_t len_bytes)
{
	ZSTD_inBuffer in = {b->buffer + b->start, b->end - b->start, 0};
	ZSTD_outBuffer out = {dst, len_bytes, 0};
	size_t left;

	if (in.size == 0 && !b->in_frame)
		return 0;
	left = ZSTD_decompressStream(b->zstd, &out, &in);
	if (ZSTD_isError(left))
		return damaged(b, ZSTD_getErrorName(left));
	b->start += in.pos;
	b->in_frame = left != 0;
	return (int64_t)out.pos;
}

static int64_t read_on(struct bytes *b, void *dst, size_t len_bytes)
{
	int64_t got = 0;
	int rc;

	while (len_bytes > 0) {
		size_t left = b->end - b->start;

		if (b->packing == PACKING_NONE) {
			got = (int64_t)(left < len_bytes ? left : len_bytes);
			memcpy(dst, b->buffer + b->start, (size_t)got);
			b->start += (size_t)got;
		} else {
			got = b->packing == PACKING_GZIP ? inflate_some(b, dst, len_bytes)
			                                 : unzstd_some(b, dst, len_bytes);
		}
		if (got != 0)
			return got;
		if (b->file_ended && b->start == b->end)
			return b->in_frame ? damaged(b, "the file ends too early") : 0;
		if ((b->file_ended || left == BUFFER_BYTES) && b->end - b->start == left)
			return damaged(b, "it cannot be unpacked");
		rc = refill(b);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int64_t bytes_peek(struct bytes *b, const char **data)
{
	int64_t got = 1;

	while (b->peeked_end < BYTES_PEEK_MAX && got > 0) {
		got = read_on(b, b->peeked + b->peeked_end, BYTES_PEEK_MAX - b->peeked_end);
		if (got > 0)
			b->peeked_end += (size_t)got;
	}
	*data = b->peeked;
	return got < 0 ? got : (int64_t)b->peeked_end;
}

int64_t bytes_read(struct bytes *b, void *dst, size_t len_bytes)
{
	size_t left = b->peeked_end - b->peeked_start;

	if (left == 0)
		return read_on(b, dst, len_bytes);
	if (len_bytes > left)
		len_bytes = left;
	memcpy(dst, b->peeked + b->peeked_start, len_bytes);
	b->peeked_start += len_bytes;
	return (int64_t)len_bytes;
}

int64_t bytes_position(const struct bytes *b)
{
	return b->position;
}
