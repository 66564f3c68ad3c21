/* A window that moves over a file's bytes: the bytes read and not yet used, and the line where they begin.
 *
 * The readers of JSON and CSV share it. It grows to the longest record, up to WINDOW_RECORD_BYTES; the file
 * may have any size.
 */
#ifndef FERRY_DATA_SOURCE_WINDOW_H
#define FERRY_DATA_SOURCE_WINDOW_H

#include <stddef.h>
#include <stdint.h>

struct bytes;

enum { WINDOW_RECORD_BYTES = 256 << 20 };

struct window {
	struct bytes *bytes; /* owned */
	char *path;
	char *data;
	size_t start, end, cap_bytes; /* data[start, end) is in memory */
	int64_t line;                 /* of data[start], from 1 */
};

/* Takes ownership of `bytes`, even on failure. Skips a UTF-8 byte order mark; ERR_INPUT for UTF-16 and
 * git-lfs pointers. window_close also takes a zeroed window. */
int window_open(struct window *w, struct bytes *bytes, const char *path);
void window_close(struct window *w);

/* Reads more bytes into the window; data may move. 1, 0 at the end of the file, or a negative ERR_*:
 * ERR_UNSUPPORTED for a record of more than WINDOW_RECORD_BYTES. */
int window_fill(struct window *w);

/* Moves the start past len_bytes, and counts lines. */
void window_consume(struct window *w, size_t len_bytes);

/* Length of the line at the start, without its newline; at the end of the file, of the remaining bytes. */
int window_line(struct window *w, size_t *len_bytes);

#endif
