#include "data/records.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

enum { READ_BYTES = 1 << 20 };

struct records {
	const char *path; /* owned */
	int fd, is_array, ended;
	int64_t file_bytes, read_bytes;
	char *data; /* the window [start, end) of what was read and not yet returned */
	size_t start, end, cap_bytes;
	int64_t line, element; /* line at `start`, from 1; elements returned */
	char where[512];
};

/* Reads more behind the window. 1 when bytes came, 0 at the end of the file. */
static int fill(struct records *r)
{
	int64_t left = r->file_bytes - r->read_bytes;
	size_t want = left < READ_BYTES ? (size_t)left : READ_BYTES;
	int rc;

	if (left == 0)
		return 0;
	if (r->start > 0) {
		memmove(r->data, r->data + r->start, r->end - r->start);
		r->end -= r->start;
		r->start = 0;
	}
	if (r->end + want > r->cap_bytes) {
		size_t cap_bytes = (r->end + want) * 2;
		char *grown = mem_resize(r->data, cap_bytes, 1);

		if (!grown)
			return ERR_NOMEM;
		r->data = grown;
		r->cap_bytes = cap_bytes;
	}
	rc = file_read_at(r->fd, r->path, r->data + r->end, want, r->read_bytes);
	if (rc < 0)
		return rc;
	r->end += want;
	r->read_bytes += (int64_t)want;
	return 1;
}

static void consume(struct records *r, size_t len_bytes)
{
	for (size_t i = r->start; i < r->start + len_bytes; i++)
		r->line += r->data[i] == '\n';
	r->start += len_bytes;
}

/* The first byte that is not white space, still in the window: 1, or 0 at the end. */
static int skip_space(struct records *r, char *first)
{
	for (;;) {
		while (r->start < r->end && strchr(" \t\r\n", r->data[r->start]) && r->data[r->start])
			consume(r, 1);
		if (r->start < r->end) {
			*first = r->data[r->start];
			return 1;
		}
		int rc = fill(r);

		if (rc <= 0)
			return rc;
	}
}

int records_open(struct records **out, const char *path)
{
	struct records *r = mem_alloc(1, sizeof(*r));
	char first = 0;
	int rc;

	*out = NULL;
	if (!r)
		return ERR_NOMEM;
	r->fd = -1;
	r->line = 1;
	r->path = mem_strdup(path);
	rc = r->path ? 0 : ERR_NOMEM;
	if (rc == 0)
		rc = r->fd = file_open_read(path, &r->file_bytes);
	if (rc >= 0)
		rc = fill(r);
	if (rc < 0)
		goto out;
	if (r->end >= 3 && memcmp(r->data, "\xef\xbb\xbf", 3) == 0)
		r->start = 3;
	rc = skip_space(r, &first);
	if (rc < 0)
		goto out;
	if (r->end >= 2 && (memcmp(r->data, "\xff\xfe", 2) == 0 || memcmp(r->data, "\xfe\xff", 2) == 0)) {
		rc = err_set(ERR_INPUT,
		        "%s: the file is UTF-16; turn it into UTF-8 first (iconv -f UTF-16 -t UTF-8)", path);
		goto out;
	}
	if (rc && first != '[' && first != '{') { /* csv, parquet, gz */
		rc = err_set(ERR_INPUT,
		        "%s:%" PRId64 ": a JSON object begins with '{', a list of them with '['; turn csv, "
		        "parquet and the like into .jsonl first",
		        path, r->line);
		goto out;
	}
	if (first == '[') {
		r->is_array = 1;
		consume(r, 1);
	}
	*out = r;
	return 0;
out:
	records_close(r);
	return rc;
}

void records_close(struct records *r)
{
	if (!r)
		return;
	if (r->fd >= 0)
		close(r->fd);
	mem_free((char *)r->path);
	mem_free(r->data);
	mem_free(r);
}

/* Length of the line at the window's start, without its newline. */
static int line_length(struct records *r, size_t *len_bytes)
{
	size_t seen = 0;

	for (;;) {
		char *newline = memchr(r->data + r->start + seen, '\n', r->end - r->start - seen);

		if (newline) {
			*len_bytes = (size_t)(newline - r->data) - r->start;
			return 0;
		}
		seen = r->end - r->start;
		int rc = fill(r);

		if (rc < 0)
			return rc;
		if (rc == 0) {
			*len_bytes = seen;
			return 0;
		}
	}
}

/* Length of the array element at the window's start: up to the comma or bracket outside of all strings
 * and inner brackets. Only finds the end; json_parse judges what is inside. */
static int element_length(struct records *r, size_t *len_bytes)
{
	int64_t depth = 0;
	int in_string = 0, escaped = 0;

	for (size_t i = 0;; i++) {
		if (r->start + i == r->end) {
			int rc = fill(r);

			if (rc < 0)
				return rc;
			if (rc == 0)
				return err_set(ERR_INPUT, "%s: the file ends inside the array", r->where);
		}
		char c = r->data[r->start + i];

		if (in_string) {
			in_string = escaped || c != '"';
			escaped = !escaped && c == '\\';
		} else if (c == '"') {
			in_string = 1;
		} else if (c == '[' || c == '{') {
			depth++;
		} else if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
			*len_bytes = i;
			return 0;
		} else if (c == ']' || c == '}') {
			depth--;
		}
	}
}

/* Steps over the comma before an element or the closing bracket: 1 when an element follows. */
static int array_advance(struct records *r)
{
	char c = 0;
	int rc = skip_space(r, &c);

	if (rc > 0 && c == ',' && r->element > 0) {
		consume(r, 1);
		rc = skip_space(r, &c);
		if (rc > 0 && c != ']' && c != ',')
			return 1;
	} else if (rc > 0 && c == ']') {
		consume(r, 1);
		rc = skip_space(r, &c);
		if (rc == 0)
			r->ended = 1;
		if (rc <= 0)
			return rc;
		return err_set(ERR_INPUT, "%s:%" PRId64 ": something follows the end of the array", r->path,
		        r->line);
	} else if (rc > 0 && r->element == 0 && c != ',') {
		return 1;
	}
	if (rc < 0)
		return rc;
	if (rc == 0)
		return err_set(ERR_INPUT, "%s:%" PRId64 ": the file ends inside the array", r->path, r->line);
	return err_set(ERR_INPUT, "%s:%" PRId64 ": '%c' where %s should be", r->path, r->line,
	        isprint((unsigned char)c) ? c : '?',
	        c == ']' || c == ',' ? "an element of the array" : "a comma or ']'");
}

int records_next(struct records *r, json_t **record)
{
	size_t len_bytes = 0;
	char first;
	int rc = 0;

	*record = NULL;
	if (r->ended)
		return 0;
	rc = r->is_array ? array_advance(r) : skip_space(r, &first);
	if (rc <= 0)
		return rc;
	if (r->is_array) {
		r->element++;
		snprintf(r->where, sizeof(r->where), "%.400s: element %" PRId64 " (line %" PRId64 ")",
		        r->path, r->element, r->line);
		rc = element_length(r, &len_bytes);
	} else {
		snprintf(r->where, sizeof(r->where), "%.400s:%" PRId64, r->path, r->line);
		rc = line_length(r, &len_bytes);
	}
	if (rc == 0)
		rc = r->is_array ? json_parse(record, r->where, r->data + r->start, len_bytes)
		                 : json_parse_piece(record, r->path, r->data + r->start, len_bytes, r->line);
	consume(r, len_bytes);
	return rc < 0 ? rc : 1;
}

const char *records_where(const struct records *r)
{
	return r->where;
}
