/* Reading tokenizer.json strictly: a key that nobody understands is an error, not a shrug. */
#ifndef FERRY_DATA_TOKENIZER_JSON_KEYS_H
#define FERRY_DATA_TOKENIZER_JSON_KEYS_H

#include <jansson.h>

/* The string under "type". ERR_INPUT when spec is no object or has none. */
int json_type_of(const json_t *spec, const char *where, const char **type);

/* ERR_UNSUPPORTED naming the first key of `object` that is not among `keys`, which are separated by single
 * spaces. */
int json_check_keys(const json_t *object, const char *where, const char *keys);

/* The array under `key` of a {"type": "Sequence", ..}; `part` is the part of the file that it belongs to.
 * ERR_UNSUPPORTED when `depth` Sequences already lie around it and that is too many. */
int json_sequence(const json_t *spec, const char *where, const char *part, const char *key, int depth,
        const json_t **list);

/* A boolean that is `fallback` when absent or null. */
int json_flag(const json_t *object, const char *where, const char *key, int fallback, int *flag);

#endif
