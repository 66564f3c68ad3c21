/* JSON by jansson, strict: duplicate keys, NaN and trailing bytes are errors, nesting is bounded (2048).
 *
 * It accepts two things that jansson alone refuses: a byte order mark, and integers beyond int64. These
 * become reals (tokenizer_config.json has "model_max_length": 1000000000000000019884624838656); rows of data
 * keep their digits (json_parse_exact). The top value
 * may have any type. Strings may hold "\u0000" (json_get_str refuses those by name); keys may not.
 *
 * Messages of getters name the file, the key and, if it is wrong, the kind of the value. `where` is the file
 * name or any other prefix for messages. Values stay owned by the tree; json_decref(root) frees it.
 */
#ifndef FERRY_BASE_JSON_H
#define FERRY_BASE_JSON_H

#include <jansson.h> /* IWYU pragma: export */
#include <stddef.h>
#include <stdint.h>

/* Parses a whole text or file. ERR_INPUT with "path:line:column: what", ERR_NOMEM, for a file also ERR_IO;
 * *root is then NULL. */
int json_parse(json_t **root, const char *where, const char *text, size_t len_bytes);

/* The same for a piece of a file that begins on this line, counted from 1. */
int json_parse_piece(json_t **root, const char *where, const char *text, size_t len_bytes, int64_t line);
int json_read_file(json_t **root, const char *path, int64_t max_bytes);

/* The same for a file that Python may have written: Infinity, -Infinity and NaN, which JSON lacks, become
 * {"__float__": "Infinity"} and its like, as transformers 5 writes them. */
int json_read_python(json_t **root, const char *path, int64_t max_bytes);

/* The same, but an integer beyond int64 becomes an object that no text can give: json_big_digits returns its
 * digits, and NULL for every other value. At most JSON_BIG_DIGITS_MAX digits, as in Python. */
enum { JSON_BIG_DIGITS_MAX = 4300 };
int json_parse_exact(json_t **root, const char *where, const char *text, size_t len_bytes, int64_t line);
const char *json_big_digits(const json_t *value);
int json_is_map(const json_t *value);         /* an object of the text, not one of these */
json_t *json_of_binary(size_t len_bytes);     /* stands for bytes that are not text; NULL: out of memory */
json_t *json_big_integer(const char *digits); /* NULL: out of memory */

/* Writes a value as text (mem_free) with jansson's flags. ERR_NOMEM, also for value NULL, so that a caller
 * can pass on json_pack's result unchecked. (json_dumps alone loses keys when memory runs out.) */
int json_write(char **text, const json_t *value, size_t flags);

/* Typed access to a key of an object. Returns 1 after writing *out; 0 with *out unchanged if the key is
 * absent or null; ERR_INPUT for another type. A number key accepts integers and reals; an integer key accepts
 * a real without a fraction (1e6). */
int json_get_int(const json_t *object, const char *where, const char *key, int64_t *out);
int json_get_num(const json_t *object, const char *where, const char *key, double *out);
int json_get_bool(const json_t *object, const char *where, const char *key, int *out);
int json_get_str(const json_t *object, const char *where, const char *key, const char **out);
int json_get_object(const json_t *object, const char *where, const char *key, json_t **out);
int json_get_array(const json_t *object, const char *where, const char *key, json_t **out);

/* A JSON string from a text that may not be UTF-8, such as a path. If it is not, "?" replaces each byte that
 * is not ASCII. NULL: out of memory. */
json_t *json_of_text(const char *text);

/* "integer", "string", ... for messages. */
const char *json_kind_name(const json_t *value);

/* null for a value that is not finite, because JSON has none. NULL: out of memory; json_pack passes it on. */
json_t *json_finite(double value);

/* An integer if it is one, as not every reader takes 16.0; else a real. NULL: out of memory, or not finite.
 */
json_t *json_of_number(double value);

/* A new array of the values; NULL: out of memory. */
json_t *json_ints(const int64_t *values, int count);

#endif
