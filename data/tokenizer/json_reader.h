/* Reads large parts of a JSON text piece by piece, without a tree: vocabularies and merges.
 *
 * A reader stands at a place in a text and moves over it. The text is valid UTF-8; everything else is checked
 * as it is read, and errors (ERR_INPUT) name file and line. What json.h reads as a tree, it reads without
 * these parts.
 */
#ifndef FERRY_DATA_TOKENIZER_JSON_READER_H
#define FERRY_DATA_TOKENIZER_JSON_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct json_reader {
	const char *where; /* for messages */
	const char *begin, *at, *end;
	struct str text; /* the last string that had escapes; json_reader_free */
};

/* Moves past the value that comes. What lies inside brackets is not looked at closely. */
int json_reader_skip(struct json_reader *r);

/* The first character of the value that comes: '{', '[', '"', or of a number or word; 0 at the end. */
char json_reader_peek(struct json_reader *r);

/* Moves past `c`, or an error. */
int json_reader_expect(struct json_reader *r, char c);

/* After the opening bracket, and after each element: 1 when another comes, 0 past the closing one. *count is
 * 0 at first and counts elements. */
int json_reader_more(struct json_reader *r, char close, int64_t *count);

/* A string; it lasts until the next one is read. */
int json_reader_string(struct json_reader *r, const char **text, size_t *len_bytes);

int json_reader_int(struct json_reader *r, int64_t *value);

/* A number as Rust's serde_json reads it, which may differ in the last bit from the nearest double. */
int json_reader_number(struct json_reader *r, double *value);

void json_reader_free(struct json_reader *r);

/* ERR_INPUT with file and line of where the reader stands. */
int json_reader_error(const struct json_reader *r, const char *what);

#endif
