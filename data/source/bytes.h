/* The bytes of a file from first to last, decompressed from gzip or zstd if necessary.
 *
 * The first bytes of the file tell its compression, not its name. Memory is one buffer, for any size of the
 * file. "-" is standard input. Files of several gzip members or zstd frames are read to their end.
 */
#ifndef FERRY_DATA_SOURCE_BYTES_H
#define FERRY_DATA_SOURCE_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct bytes;

/* ERR_INPUT: no such file; ERR_UNSUPPORTED: another compression (bzip2, xz, zip ...), with its name and
 * remedy. */
int bytes_open(struct bytes **b, const char *path);
void bytes_close(struct bytes *b);

/* Reads the next bytes, at most len_bytes. Returns their number (> 0), 0 at the end, ERR_IO, or ERR_INPUT if
 * compressed bytes are damaged. */
int64_t bytes_read(struct bytes *b, void *dst, size_t len_bytes);

/* Bytes read from the file so far, before decompression. */
int64_t bytes_position(const struct bytes *b);

/* The first bytes of the file, without consuming them: BYTES_PEEK_MAX, or fewer if the file is shorter. Call
 * it before bytes_read; *data is valid until then. Returns the number of bytes, or an error as bytes_read. */
enum { BYTES_PEEK_MAX = 4096 };
int64_t bytes_peek(struct bytes *b, const char **data);

#endif
