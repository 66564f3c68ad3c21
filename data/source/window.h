/* A window that moves over a file's bytes: what was read and not yet used up, and the line where it begins.
 *
 * The two readers of text files (JSON, CSV) share it. It grows to the longest record; the file may be of any
 * size.
 */
#ifndef FERRY_DATA_SOURCE_WINDOW_H
#define FERRY_DATA_SOURCE_WINDOW_H

#include <stddef.h>
#include <stdint.h>

struct bytes;

struct window {
	struct bytes *bytes; /* owned */
	char *data;
	size_t start, end, cap_bytes; /* data[start, end) is there */
	int64_t line;                 /* of data[start], from 1 */
};

/* Takes `bytes` over, also when it fails. Skips a UTF-8 byte order mark; ERR_INPUT for UTF-16. window_close
 * takes a zeroed window too. */
int window_open(struct window *w, struct bytes *bytes, const char *path);
void window_close(struct window *w);

/* Reads more behind the window; data may move. 1 when bytes came, 0 at the end of the file, or a negative
 * ERR_*. */
int window_fill(struct window *w);

/* Steps over len_bytes, counting lines. */
void window_consume(struct window *w, size_t len_bytes);

/* Length of the line at the start, without its newline; at the end of the file, of what is left. */
int window_line(struct window *w, size_t *len_bytes);

#endif
