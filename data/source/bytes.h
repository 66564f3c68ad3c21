/* The bytes of a file from its first to its last: as they are, or unpacked from gzip or zstd.
 *
 * What a file is packed with is seen from its first bytes, not from its name. Memory is one buffer, whatever
 * the size of the file. "-" is standard input. Files of several gzip members or zstd frames are read to their
 * end.
 */
#ifndef FERRY_DATA_SOURCE_BYTES_H
#define FERRY_DATA_SOURCE_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct bytes;

/* ERR_INPUT: no such file; ERR_UNSUPPORTED: packed in another way (bzip2, xz, zip ...), named with its
 * remedy. */
int bytes_open(struct bytes **b, const char *path);
void bytes_close(struct bytes *b);

/* Up to len_bytes of what comes next: how many (> 0), 0 at the end, ERR_INPUT where packed bytes are damaged,
 * ERR_IO. */
int64_t bytes_read(struct bytes *b, void *dst, size_t len_bytes);

/* Of the file as it is, packed or not: so many were read of it. */
int64_t bytes_position(const struct bytes *b);

/* The first bytes (BYTES_PEEK_MAX, fewer where the file is shorter) without taking them, before the first
 * bytes_read: *data is valid until then. How many, or as bytes_read. */
enum { BYTES_PEEK_MAX = 4096 };
int64_t bytes_peek(struct bytes *b, const char **data);

#endif
