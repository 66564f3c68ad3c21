/* Records of CSV (RFC 4180) and TSV: the first line names the columns, every value is a string. */
#include "data/source/records.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/source/window.h"

enum { COLUMNS_MAX = 10000 };

/* The fields of one record: texts one after another, each with a NUL. */
struct fields {
	struct str text;
	size_t *start; /* [count + 1] */
	int64_t count, cap_count;
};

struct csv_records {
	char *path;
	struct window w;
	char separator;
	struct fields columns, row;
};

static void fields_free(struct fields *f)
{
	str_free(&f->text);
	mem_free(f->start);
	*f = (struct fields){0};
}

/* Ends a field: it holds the text added since the last call. */
static int end_field(struct fields *f)
{
	if (f->count + 2 > f->cap_count) {
		int64_t cap_count = 2 * f->cap_count + 16;
		size_t *grown = mem_resize(f->start, (size_t)cap_count, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		f->start = grown;
		f->cap_count = cap_count;
	}
	if (f->count == 0)
		f->start[0] = 0;
	str_add_char(&f->text, 0);
	f->start[++f->count] = f->text.len_bytes;
	return str_check(&f->text);
}

/* Reads until data[start + at] exists: 1, or 0 at the end of the file. */
static int have(struct window *w, size_t at)
{
	int rc = 1;

	while (rc > 0 && w->start + at >= w->end)
		rc = window_fill(w);
	return rc;
}

/* Reads a quoted field after its opening quote; *at moves past the closing one. */
static int read_quoted(struct csv_records *r, struct fields *f, size_t *at)
{
	struct window *w = &r->w;
	int rc;

	for (;;) {
		const char *from, *quote;

		rc = have(w, *at);
		if (rc < 0)
			return rc;
		if (rc == 0)
			return err_set(ERR_INPUT, "%s:%" PRId64 ": the file ends inside a quoted field",
			        r->path, w->line);
		from = w->data + w->start + *at;
		quote = memchr(from, '"', (size_t)(w->data + w->end - from));
		if (!quote) {
			str_add_bytes(&f->text, from, (size_t)(w->data + w->end - from));
			*at = w->end - w->start;
			continue;
		}
		str_add_bytes(&f->text, from, (size_t)(quote - from));
		*at = (size_t)(quote - w->data) - w->start + 1;
		rc = have(w, *at);
		if (rc <= 0 || w->data[w->start + *at] != '"')
			return rc < 0 ? rc : 0;
		str_add_char(&f->text, '"'); /* two quotes are one */
		++*at;
	}
}

/* Reads a field. *end is the character that ends it: the separator, a newline, or 0 at the end of the
 * file. */
static int read_field(struct csv_records *r, struct fields *f, size_t *at, char *end)
{
	struct window *w = &r->w;
	size_t field_start = f->text.len_bytes;
	int quoted = 0, rc = have(w, *at);

	if (rc > 0 && w->data[w->start + *at] == '"') {
		quoted = 1;
		++*at;
		rc = read_quoted(r, f, at);
	}
	while (rc >= 0 && (rc = have(w, *at)) > 0) {
		char c = w->data[w->start + *at];

		++*at;
		if (c == r->separator || c == '\n') {
			*end = c;
			break;
		}
		if (quoted && c == '\r') /* of a line that ends in \r\n */
			continue;
		if (quoted)
			return err_set(ERR_INPUT,
			        "%s:%" PRId64 ": text after the closing quote of a field; inside a quoted "
			        "field, write a quote twice",
			        r->path, w->line);
		str_add_char(&f->text, c);
	}
	if (rc < 0)
		return rc;
	if (rc == 0)
		*end = 0;
	if (!quoted && *end != r->separator && f->text.len_bytes > field_start && !f->text.broken &&
	        f->text.data[f->text.len_bytes - 1] == '\r')
		f->text.len_bytes--; /* the line ends in \r\n */
	return end_field(f);
}

/* Reads the next record and skips empty lines: 1, or 0 at the end. */
static int read_fields(struct csv_records *r, struct fields *f, int64_t *line)
{
	for (;;) {
		size_t at = 0;
		char end = 0;
		int rc = have(&r->w, 0);

		if (rc <= 0)
			return rc;
		f->count = 0;
		f->text.len_bytes = 0;
		*line = r->w.line;
		do
			rc = read_field(r, f, &at, &end);
		while (rc == 0 && end == r->separator && f->count <= COLUMNS_MAX);
		if (rc < 0)
			return rc;
		if (f->count > COLUMNS_MAX)
			return err_set(ERR_INPUT, "%s:%" PRId64 ": more than %d columns", r->path, *line,
			        COLUMNS_MAX);
		window_consume(&r->w, at);
		if (f->count > 1 || f->start[1] > 1 || at > 2) /* "" is a value, an empty line is none */
			return 1;
	}
}

static const char *field(const struct fields *f, int64_t i, size_t *len_bytes)
{
	*len_bytes = f->start[i + 1] - f->start[i] - 1;
	return f->text.data + f->start[i];
}

/* A .tsv file has tabs. A .csv file without a comma in its header may have semicolons (spreadsheets in
 * much of Europe) or tabs. */
static int find_separator(struct csv_records *r, const struct record_file *f)
{
	size_t len_bytes = 0;
	int rc = 0;

	r->separator = ',';
	if (!record_suffix_in(f->suffix, ".csv")) {
		r->separator = '\t';
		return 0;
	}
	rc = window_line(&r->w, &len_bytes);
	if (rc == 0 && !memchr(r->w.data + r->w.start, ',', len_bytes))
		r->separator = memchr(r->w.data + r->w.start, ';', len_bytes)    ? ';'
		               : memchr(r->w.data + r->w.start, '\t', len_bytes) ? '\t'
		                                                                 : ',';
	return rc;
}

/* Every column needs a name of its own, in UTF-8. */
static int check_columns(const struct csv_records *r, int64_t line)
{
	json_t *seen = json_object();
	int rc = seen ? 0 : err_set(ERR_NOMEM, "out of memory");

	for (int64_t i = 0; rc == 0 && i < r->columns.count; i++) {
		size_t len;
		const char *name = field(&r->columns, i, &len);

		if (strlen(name) != len || json_object_get(seen, name))
			rc = err_set(ERR_INPUT, "%s:%" PRId64 ": column %" PRId64 " has %s", r->path, line,
			        i + 1,
			        strlen(name) != len ? "a NUL in its name" : "the name of another column");
		else if (json_object_set_new(seen, name, json_true()) < 0)
			rc = err_set(ERR_INPUT, "%s:%" PRId64 ": the name of column %" PRId64 " is not UTF-8",
			        r->path, line, i + 1);
	}
	json_decref(seen);
	return rc;
}

static void csv_close(void *reader)
{
	struct csv_records *r = reader;

	if (!r)
		return;
	window_close(&r->w);
	fields_free(&r->columns);
	fields_free(&r->row);
	mem_free(r->path);
	mem_free(r);
}

static int csv_open(void **reader, struct record_file *f)
{
	struct csv_records *r = mem_alloc(1, sizeof(*r));
	int64_t line = 1;
	int rc;

	if (!r)
		return ERR_NOMEM;
	rc = window_open(&r->w, f->bytes, f->path);
	f->bytes = NULL;
	r->path = mem_strdup(f->path);
	if (rc == 0 && !r->path)
		rc = ERR_NOMEM;
	if (rc == 0)
		rc = find_separator(r, f);
	if (rc == 0)
		rc = read_fields(r, &r->columns, &line);
	if (rc > 0)
		rc = check_columns(r, line);
	if (rc < 0) {
		csv_close(r);
		return rc;
	}
	*reader = r;
	return 0;
}

static int csv_next(void *reader, json_t **record, char *where)
{
	struct csv_records *r = reader;
	int64_t line = 0;
	int rc = read_fields(r, &r->row, &line);

	if (rc <= 0)
		return rc;
	snprintf(where, RECORDS_WHERE_BYTES, "%.400s:%" PRId64, r->path, line);
	if (r->row.count != r->columns.count)
		return err_set(ERR_INPUT, "%s: %" PRId64 " fields, but the header line has %" PRId64, where,
		        r->row.count, r->columns.count);
	*record = json_object();
	for (int64_t i = 0; *record && i < r->row.count; i++) {
		size_t len, name_len;
		const char *text = field(&r->row, i, &len), *name = field(&r->columns, i, &name_len);
		json_t *value = json_stringn(text, len);

		if (value && json_object_set_new(*record, name, value) == 0)
			continue;
		json_decref(*record);
		*record = NULL;
		return err_set(ERR_INPUT, "%s: column \"%s\" is not UTF-8", where, name);
	}
	return *record ? 1 : err_set(ERR_NOMEM, "out of memory");
}

const struct record_kind record_kind_csv = {"CSV", ".csv .tsv .tab", NULL, csv_open, csv_next, csv_close};
