/* JSON by jansson, strict: duplicate keys, NaN and trailing bytes are errors, nesting is bounded (2048).
 *
 * It accepts two things that jansson alone refuses: a byte order mark, and integers beyond int64, which
 * become reals (tokenizer_config.json has "model_max_length": 1000000000000000019884624838656). The top
 * value may have any type. Strings may hold "\u0000" (json_get_str refuses those by name); keys may not.
 *
 * Getters name the file and key in their message, and the value's kind when it is the wrong one. `where` is
 * the file name or any other prefix for messages. Values stay owned by the tree; json_decref(root) frees it.
 */
#ifndef FERRY_BASE_JSON_H
#define FERRY_BASE_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Whole text or file. ERR_INPUT with "path:line:column: what", ERR_NOMEM, of the file ERR_IO; *root is
 * NULL then. */
int json_parse(json_t **root, const char *where, const char *text, size_t len_bytes);

/* The same for a piece of a file that begins on this line, counted from 1. */
int json_parse_piece(json_t **root, const char *where, const char *text, size_t len_bytes, int64_t line);
int json_read_file(json_t **root, const char *path, int64_t max_bytes);

/* The text of a value (mem_free) by jansson's flags, or ERR_NOMEM; NULL as value is out of memory too, so
 * that json_pack's result can be passed on unseen. (json_dumps alone loses keys when memory runs out.) */
int json_write(char **text, const json_t *value, size_t flags);

/* Typed access to a key of an object. An absent key, or null, leaves *out as it is and returns 0;
 * returns 1 when the key was there and *out was written; ERR_INPUT when it has another type. A number
 * key accepts integers and reals; an integer key accepts a real with no fraction (1e6). */
int json_get_int(const json_t *object, const char *where, const char *key, int64_t *out);
int json_get_num(const json_t *object, const char *where, const char *key, double *out);
int json_get_bool(const json_t *object, const char *where, const char *key, int *out);
int json_get_str(const json_t *object, const char *where, const char *key, const char **out);
int json_get_object(const json_t *object, const char *where, const char *key, json_t **out);
int json_get_array(const json_t *object, const char *where, const char *key, json_t **out);

/* A JSON string from a text that may not be UTF-8, such as a path: then "?" replaces each byte that is not
 * ASCII. NULL: out of memory. */
json_t *json_of_text(const char *text);

/* "integer", "string", ... for messages. */
const char *json_kind_name(const json_t *value);

/* A new array of these; NULL: no memory. */
json_t *json_ints(const int64_t *values, int count);

#endif
