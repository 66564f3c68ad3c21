/* The records of a data file, one JSON object at a time, whatever the file is: JSON lines or one JSON array,
 * CSV or TSV with a header line, Parquet; text files also packed by gzip or zstd.
 *
 * Each kind of file is a struct record_kind in one list (records.c). A kind says whether a file is its own,
 * by its first bytes or its name, and reads it in order. Memory is one record and a read buffer (Parquet: a
 * page of each column), whatever the size of the file.
 */
#ifndef FERRY_DATA_SOURCE_RECORDS_H
#define FERRY_DATA_SOURCE_RECORDS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct bytes;
struct records;

/* ERR_INPUT: no such file, or one that no kind knows, with what can be read. */
int records_open(struct records **r, const char *path);
void records_close(struct records *r);

/* The next record (json_decref it): 1 with *record, 0 at the end, or a negative ERR_* that names file and
 * line or row. */
int records_next(struct records *r, json_t **record);

/* Where the record last returned stands: "file:12", "file: element 3 (line 40)", "file: row 7". Valid until
 * the next call. */
const char *records_where(const struct records *r);

/* ---- for the kinds ---- */

enum { RECORDS_WHERE_BYTES = 512, RECORDS_HEAD_BYTES = 16 };

/* What is known of a file before it is opened by a kind. */
struct record_file {
	const char *path;
	const char *suffix; /* of the name, without .gz or .zst: ".csv"; "" where there is none. Compare
	                       ignoring case */
	char head[RECORDS_HEAD_BYTES]; /* the first bytes (unpacked), without leading white space, zeros
	                                  behind */
	struct bytes *bytes;           /* all of it (unpacked); who takes it over sets this to NULL */
};

struct record_kind {
	const char *name;
	int (*is_mine)(const struct record_file *f);
	int (*open)(void **reader, struct record_file *f);
	int (*next)(
	        void *reader, json_t **record, char *where); /* as records_next; where[RECORDS_WHERE_BYTES] */
	void (*close)(void *reader);                         /* takes NULL */
};

extern const struct record_kind record_kind_json, record_kind_csv, record_kind_parquet;

/* suffix is one of those in `list`, separated by blanks. */
int record_suffix_is(const struct record_file *f, const char *list);

#endif
