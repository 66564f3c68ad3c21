/* Reads the records of a data file, one JSON object at a time. Files: JSON lines or one JSON array, CSV or
 * TSV with a header line, Parquet; text files also with gzip or zstd.
 *
 * Each kind of file is a struct record_kind in one list (RECORD_KINDS). A kind recognises its files by
 * suffix and first bytes, and reads one in order. Memory is one record and a read buffer (Parquet: a page of
 * each column), for any size of the file.
 */
#ifndef FERRY_DATA_SOURCE_RECORDS_H
#define FERRY_DATA_SOURCE_RECORDS_H

#include "base/str.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct bytes;
struct records;

/* ERR_INPUT: no such file, or an unknown kind; the text lists the supported ones. */
int records_open(struct records **r, const char *path);
void records_close(struct records *r);

/* The next record (json_decref it): 1 with *record, 0 at the end, or a negative ERR_* that names file and
 * line or row. */
int records_next(struct records *r, json_t **record);

/* Bytes of the file read so far; 0 if unknown (Parquet). */
int64_t records_position(const struct records *r);

/* The place of the last record: "file:12", "file: element 3 (line 40)", "file: row 7". Valid until the next
 * call. */
const char *records_where(const struct records *r);

/* ---- suffixes of names, without .gz or .zst: "a/b.CSV.gz" has ".CSV" ---- */

enum { RECORD_SUFFIX_BYTES = 16 };

/* "" if there is none, or if the name only begins with a dot. */
void record_suffix_find(char suffix[RECORD_SUFFIX_BYTES], const char *path);

/* 1 if suffix is in `list` (separated by blanks), ignoring case. */
int record_suffix_in(const char *suffix, const char *list);

/* 1 if some kind has this suffix. records_suffixes appends those of all kinds, each after a blank. */
int records_suffix_known(const char *suffix);
void records_suffixes(struct str *out);

/* ---- for the kinds ---- */

enum { RECORDS_WHERE_BYTES = 512, RECORDS_HEAD_BYTES = 16 };

/* Facts about a file before a kind opens it. */
struct record_file {
	const char *path;
	const char *suffix;            /* record_suffix_find */
	char head[RECORDS_HEAD_BYTES]; /* the first bytes (unpacked), without leading white space, padded with
	                                  zeros */
	struct bytes *bytes; /* the whole file (unpacked); a kind that takes ownership sets this to NULL */
};

struct record_kind {
	const char *name;
	const char *suffixes;                        /* of its files: ".csv .tsv" */
	int (*is_mine)(const struct record_file *f); /* by its first bytes, under any name; NULL: never */
	int (*open)(void **reader, struct record_file *f);
	int (*next)(
	        void *reader, json_t **record, char *where); /* as records_next; where[RECORDS_WHERE_BYTES] */
	void (*close)(void *reader);                         /* takes NULL */
};

/* ROW(name): record_kind_NAME. The first matching kind reads the file; kinds that match by first bytes come
 * before kinds that match by name. */
#define RECORD_KINDS(ROW) ROW(parquet) ROW(csv) ROW(json)

#define RECORD_KIND_DECLARE(name) extern const struct record_kind record_kind_##name;
RECORD_KINDS(RECORD_KIND_DECLARE)
#undef RECORD_KIND_DECLARE

#endif
