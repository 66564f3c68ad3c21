/* The window over a text file, for the readers of JSON and CSV. */
#include "data/source/window.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "data/source/bytes.h"

enum { READ_BYTES = 1 << 20, LARGE_BYTES = 32 << 20 };

int window_open(struct window *w, struct bytes *bytes, const char *path)
{
	int rc = 1;

	*w = (struct window){.bytes = bytes, .path = mem_strdup(path), .line = 1};
	if (!w->path)
		rc = ERR_NOMEM;
	while (rc > 0 && w->end < 3)
		rc = window_fill(w);
	if (rc < 0) {
		window_close(w);
		return rc;
	}
	if (w->end >= 2 && (memcmp(w->data, "\xff\xfe", 2) == 0 || memcmp(w->data, "\xfe\xff", 2) == 0)) {
		window_close(w);
		return err_set(
		        ERR_INPUT, "%s: the file is UTF-16; convert it with iconv -f UTF-16 -t UTF-8", path);
	}
	if (file_is_lfs_pointer(w->data, w->end)) {
		window_close(w);
		return err_set(ERR_INPUT,
		        "%s: this is a git-lfs pointer instead of the file; run git lfs pull", path);
	}
	if (w->end >= 3 && memcmp(w->data, "\xef\xbb\xbf", 3) == 0)
		w->start = 3;
	return 0;
}

void window_close(struct window *w)
{
	bytes_close(w->bytes);
	mem_free(w->data);
	mem_free(w->path);
	*w = (struct window){0};
}

/* Makes room to read, and frees what a long record needed. */
static int make_room(struct window *w)
{
	size_t cap_bytes = w->end + w->end / 2 + READ_BYTES;
	char *data;

	if (w->end + READ_BYTES <= w->cap_bytes && (w->cap_bytes <= LARGE_BYTES || w->end > w->cap_bytes / 8))
		return 0;
	data = mem_resize(w->data, cap_bytes, 1);
	if (!data)
		return ERR_NOMEM;
	w->data = data;
	w->cap_bytes = cap_bytes;
	return 0;
}

int window_fill(struct window *w)
{
	int64_t got;

	if (w->start > 0) {
		memmove(w->data, w->data + w->start, w->end - w->start);
		w->end -= w->start;
		w->start = 0;
	}
	if (w->end >= WINDOW_RECORD_BYTES)
		return err_set(ERR_UNSUPPORTED,
		        "%s:%" PRId64
		        ": the row that begins here has more than %d MiB, which is the limit; make "
		        "several rows of it, or give a long text as a .txt file",
		        w->path, w->line, WINDOW_RECORD_BYTES >> 20);
	if (make_room(w) < 0)
		return ERR_NOMEM;
	got = bytes_read(w->bytes, w->data + w->end,
	        READ_BYTES < w->cap_bytes - w->end ? READ_BYTES : w->cap_bytes - w->end);
	if (got < 0)
		return (int)got;
	w->end += (size_t)got;
	return got > 0;
}

void window_consume(struct window *w, size_t len_bytes)
{
	for (size_t i = w->start; i < w->start + len_bytes; i++)
		w->line += w->data[i] == '\n';
	w->start += len_bytes;
}

int window_line(struct window *w, size_t *len_bytes)
{
	size_t seen = 0;

	for (;;) {
		char *newline = w->end > w->start + seen
		                        ? memchr(w->data + w->start + seen, '\n', w->end - w->start - seen)
		                        : NULL;
		int rc;

		if (newline) {
			*len_bytes = (size_t)(newline - w->data) - w->start;
			return 0;
		}
		seen = w->end - w->start;
		rc = window_fill(w);
		if (rc <= 0) {
			*len_bytes = seen;
			return rc;
		}
	}
}
