/* Reads tokenizer.json strictly: an unknown key is an error. */
#ifndef FERRY_DATA_TOKENIZER_JSON_KEYS_H
#define FERRY_DATA_TOKENIZER_JSON_KEYS_H

#include <jansson.h>

/* The string under "type". ERR_INPUT if spec is not an object or has no type. */
int json_type_of(const json_t *spec, const char *where, const char **type);

/* ERR_UNSUPPORTED with the first key of `object` that is not in `keys` (separated by single spaces). */
int json_check_keys(const json_t *object, const char *where, const char *keys);

/* The array under `key` of a {"type": "Sequence", ..}; `part` is the part of the file for messages.
 * `depth` is the number of Sequences around this one; ERR_UNSUPPORTED if there are too many. */
int json_sequence(const json_t *spec, const char *where, const char *part, const char *key, int depth,
        const json_t **list);

/* A boolean; `fallback` if it is absent or null. */
int json_flag(const json_t *object, const char *where, const char *key, int fallback, int *flag);

#endif
