/* The list of kinds of data files, and the choice of one for a file. */
#include "data/source/records.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/mem.h"
#include "data/source/bytes.h"

static const struct record_kind *const kinds[] = {
#define KIND(name) &record_kind_##name,
        RECORD_KINDS(KIND)
#undef KIND
};
enum { KIND_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

struct records {
	const struct record_kind *kind;
	const struct bytes *bytes; /* owned by the reader; NULL if it opens the file itself */
	void *reader;
	char where[RECORDS_WHERE_BYTES];
};

int record_suffix_in(const char *suffix, const char *list)
{
	size_t len = strlen(suffix);

	for (const char *at = list; *at; at += strcspn(at, " "), at += strspn(at, " "))
		if (strcspn(at, " ") == len && strncasecmp(at, suffix, len) == 0)
			return len > 0;
	return 0;
}

static int ends_with(const char *text, size_t len, const char *end)
{
	size_t end_len = strlen(end);

	return len > end_len && strncasecmp(text + len - end_len, end, end_len) == 0;
}

void record_suffix_find(char suffix[RECORD_SUFFIX_BYTES], const char *path)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	size_t len = strlen(name), dot;

	if (ends_with(name, len, ".gz"))
		len -= 3;
	else if (ends_with(name, len, ".zst"))
		len -= 4;
	for (dot = len; dot > 0 && name[dot - 1] != '.'; dot--)
		;
	suffix[0] = 0;
	if (dot > 1 && len - dot + 2 <= RECORD_SUFFIX_BYTES) {
		memcpy(suffix, name + dot - 1, len - dot + 1);
		suffix[len - dot + 1] = 0;
	}
}

int records_suffix_known(const char *suffix)
{
	for (int i = 0; i < KIND_COUNT; i++)
		if (record_suffix_in(suffix, kinds[i]->suffixes))
			return 1;
	return 0;
}

void records_suffixes(struct str *out)
{
	for (int i = 0; i < KIND_COUNT; i++)
		str_printf(out, " %s", kinds[i]->suffixes);
}

static int is_of(const struct record_file *f, const struct record_kind *kind)
{
	return record_suffix_in(f->suffix, kind->suffixes) || (kind->is_mine && kind->is_mine(f));
}

static int read_head(struct record_file *f)
{
	const char *data = NULL;
	int64_t got = bytes_peek(f->bytes, &data), skip = 0;

	if (got < 0)
		return (int)got;
	if (got >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0)
		skip = 3;
	while (skip < got && memchr(" \t\r\n", data[skip], 4))
		skip++;
	got = got - skip < RECORDS_HEAD_BYTES ? got - skip : RECORDS_HEAD_BYTES;
	memcpy(f->head, data + skip, (size_t)got);
	return 0;
}

int records_open(struct records **out, const char *path)
{
	struct records *r = mem_alloc(1, sizeof(*r));
	struct record_file f = {.path = path};
	const struct bytes *taken;
	char suffix[RECORD_SUFFIX_BYTES];
	int rc;

	*out = NULL;
	if (!r)
		return ERR_NOMEM;
	record_suffix_find(suffix, path);
	f.suffix = suffix;
	rc = bytes_open(&f.bytes, path);
	if (rc == 0)
		rc = read_head(&f);
	for (int i = 0; rc == 0 && !r->kind && i < KIND_COUNT; i++)
		if (is_of(&f, kinds[i]))
			r->kind = kinds[i];
	taken = f.bytes;
	if (rc == 0)
		rc = r->kind ? r->kind->open(&r->reader, &f)
		             : err_set(ERR_INPUT,
		                       "%s: neither JSON (a record begins with '{', a list of them with "
		                       "'['), CSV, "
		                       "TSV nor Parquet",
		                       path);
	r->bytes = f.bytes ? NULL : taken;
	bytes_close(f.bytes);
	if (rc < 0) {
		mem_free(r);
		return rc;
	}
	*out = r;
	return 0;
}

void records_close(struct records *r)
{
	if (!r)
		return;
	r->kind->close(r->reader);
	mem_free(r);
}

int records_next(struct records *r, json_t **record)
{
	*record = NULL;
	return r->kind->next(r->reader, record, r->where);
}

const char *records_where(const struct records *r)
{
	return r->where;
}

int64_t records_position(const struct records *r)
{
	return r->bytes ? bytes_position(r->bytes) : 0;
}
