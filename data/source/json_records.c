/* Records of JSON lines, or the elements of one JSON array. Empty lines are skipped. */
#include "data/source/records.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/source/window.h"

enum { VALUES_MAX = 8000000 };

struct json_records {
	char *path;
	struct window w;
	int is_array, ended;
	int64_t element; /* elements returned */
};

/* JSON begins with '{' or '['. Empty files are taken as well: they have no records, under any name. */
static int is_mine(const struct record_file *f)
{
	return f->head[0] == '{' || f->head[0] == '[' || (!f->head[0] && !f->head[1]);
}

/* Finds the first byte that is not white space, and leaves it in the window: 1, or 0 at the end. */
static int skip_space(struct window *w, char *first)
{
	for (;;) {
		int rc;

		while (w->start < w->end && memchr(" \t\r\n", w->data[w->start], 4))
			window_consume(w, 1);
		if (w->start < w->end) {
			*first = w->data[w->start];
			return 1;
		}
		rc = window_fill(w);
		if (rc <= 0)
			return rc;
	}
}

static void json_close(void *reader)
{
	struct json_records *r = reader;

	if (!r)
		return;
	window_close(&r->w);
	mem_free(r->path);
	mem_free(r);
}

static int json_open(void **reader, struct record_file *f)
{
	struct json_records *r = mem_alloc(1, sizeof(*r));
	char first = 0;
	int rc;

	if (!r)
		return ERR_NOMEM;
	rc = window_open(&r->w, f->bytes, f->path);
	f->bytes = NULL;
	r->path = mem_strdup(f->path);
	if (rc == 0 && !r->path)
		rc = ERR_NOMEM;
	if (rc == 0)
		rc = skip_space(&r->w, &first);
	if (rc > 0 && first != '[' && first != '{' && first != '"')
		rc = err_set(ERR_INPUT,
		        "%s:%" PRId64 ": a JSON object begins with '{', a list of them with '['", f->path,
		        r->w.line);
	if (rc < 0) {
		json_close(r);
		return rc;
	}
	if (first == '[') {
		r->is_array = 1;
		window_consume(&r->w, 1);
	}
	*reader = r;
	return 0;
}

/* Length of the array element at the window's start: up to a comma or bracket outside of strings and inner
 * brackets. Only finds the end; json_parse checks the content. */
static int element_length(struct json_records *r, const char *where, size_t *len_bytes)
{
	int64_t depth = 0;
	int in_string = 0, escaped = 0;

	for (size_t i = 0;; i++) {
		if (r->w.start + i == r->w.end) {
			int rc = window_fill(&r->w);

			if (rc < 0)
				return rc;
			if (rc == 0)
				return err_set(ERR_INPUT, "%s: the file ends inside the array", where);
		}
		char c = r->w.data[r->w.start + i];

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

/* Skips the comma before an element, or the closing bracket: 1 if an element follows. */
static int array_advance(struct json_records *r)
{
	char c = 0;
	int rc = skip_space(&r->w, &c);

	if (rc > 0 && c == ',' && r->element > 0) {
		window_consume(&r->w, 1);
		rc = skip_space(&r->w, &c);
		if (rc > 0 && c != ']' && c != ',')
			return 1;
	} else if (rc > 0 && c == ']') {
		window_consume(&r->w, 1);
		rc = skip_space(&r->w, &c);
		if (rc == 0)
			r->ended = 1;
		if (rc <= 0)
			return rc;
		return err_set(
		        ERR_INPUT, "%s:%" PRId64 ": text after the end of the array", r->path, r->w.line);
	} else if (rc > 0 && r->element == 0 && c != ',') {
		return 1;
	}
	if (rc < 0)
		return rc;
	if (rc == 0)
		return err_set(
		        ERR_INPUT, "%s:%" PRId64 ": the file ends inside the array", r->path, r->w.line);
	return err_set(ERR_INPUT, "%s:%" PRId64 ": found '%c'; expected %s", r->path, r->w.line,
	        isprint((unsigned char)c) ? c : '?',
	        c == ']' || c == ',' ? "an element of the array" : "a comma or ']'");
}

/* jansson calls the end of what it was given the file's. */
static int line_error(int rc)
{
	static const char end[] = "end of file";
	const char *text = err_text(), *at = strstr(text, end);

	if (rc != ERR_INPUT)
		return rc;
	if (!at)
		return err_reword(rc, "%s; repair or remove this row", text);
	return err_reword(
	        rc, "%.*send of line%s; repair or remove this row", (int)(at - text), text, at + strlen(end));
}

/* The number of JSON values in a text, at most: its separators outside of strings. */
static int64_t count_values(const char *text, size_t len_bytes)
{
	int in_string = 0, escaped = 0;
	int64_t count = 1;

	for (size_t i = 0; i < len_bytes; i++) {
		char c = text[i];

		if (in_string) {
			in_string = escaped || c != '"';
			escaped = !escaped && c == '\\';
		} else {
			in_string = c == '"';
			count += c == ',' || c == '[' || c == '{';
		}
	}
	return count;
}

/* A value takes up to 50 bytes of memory and two bytes of the file. */
static int check_values(const struct json_records *r, const char *where, size_t len_bytes)
{
	if (len_bytes < VALUES_MAX || count_values(r->w.data + r->w.start, len_bytes) <= VALUES_MAX)
		return 0;
	return err_set(ERR_UNSUPPORTED,
	        "%s: the row has more than %d numbers, texts and lists, which is the limit; remove columns "
	        "that "
	        "ferry does not read, or make several rows of it",
	        where, VALUES_MAX);
}

static int json_next(void *reader, json_t **record, char *where)
{
	struct json_records *r = reader;
	size_t len_bytes = 0;
	char first;
	int rc = 0;

	if (r->ended)
		return 0;
	rc = r->is_array ? array_advance(r) : skip_space(&r->w, &first);
	if (rc <= 0)
		return rc;
	if (r->is_array) {
		r->element++;
		snprintf(where, RECORDS_WHERE_BYTES, "%.400s: element %" PRId64 " (line %" PRId64 ")",
		        r->path, r->element, r->w.line);
		rc = element_length(r, where, &len_bytes);
	} else {
		snprintf(where, RECORDS_WHERE_BYTES, "%.400s:%" PRId64, r->path, r->w.line);
		rc = window_line(&r->w, &len_bytes);
	}
	if (rc == 0)
		rc = check_values(r, where, len_bytes);
	if (rc == 0)
		rc = r->is_array ? json_parse_exact(record, where, r->w.data + r->w.start, len_bytes, 1)
		                 : line_error(json_parse_exact(
		                           record, r->path, r->w.data + r->w.start, len_bytes, r->w.line));
	window_consume(&r->w, len_bytes);
	return rc < 0 ? rc : 1;
}

const struct record_kind record_kind_json = {
        "JSON", ".jsonl .json .ndjson", is_mine, json_open, json_next, json_close};
