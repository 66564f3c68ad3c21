/* Reads large parts of a JSON text piece by piece, without a tree: vocabularies and merges.
 *
 * A reader has a position in a text and moves it forward. The text must be valid UTF-8. The reader checks
 * everything else as it reads; errors (ERR_INPUT) name file and line. base/json.h reads the rest of the file
 * as a tree.
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

/* Moves past the next value. Does not check the inside of brackets. */
int json_reader_skip(struct json_reader *r);

/* The first character of the next value ('{', '[', '"', or of a number or word); 0 at the end. */
char json_reader_peek(struct json_reader *r);

/* Moves past `c`; an error if another character comes. */
int json_reader_expect(struct json_reader *r, char c);

/* Call it after the opening bracket and after each element: 1 if another element follows, 0 past the closing
 * bracket. *count must be 0 at first; it counts elements. */
int json_reader_more(struct json_reader *r, char close, int64_t *count);

/* Reads a string, which is valid until the next one is read. */
int json_reader_string(struct json_reader *r, const char **text, size_t *len_bytes);

int json_reader_int(struct json_reader *r, int64_t *value);

/* A number as Rust's serde_json reads it: its last bit may differ from the nearest double. */
int json_reader_number(struct json_reader *r, double *value);

void json_reader_free(struct json_reader *r);

/* ERR_INPUT with file and line of the reader's position. */
int json_reader_error(const struct json_reader *r, const char *what);

#endif
