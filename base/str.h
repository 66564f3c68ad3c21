/* A growing byte string. Zero-initialise to start; str_free at the end.
 *
 * Appending never fails half-way: on out of memory the string is marked broken, later appends do
 * nothing, and str_check reports it once. `data` is NUL-terminated whenever it is not NULL.
 */
#ifndef FERRY_BASE_STR_H
#define FERRY_BASE_STR_H

#include <stddef.h>

struct str {
	char *data;
	size_t len_bytes, cap_bytes;
	int broken;
};

void str_add(struct str *s, const char *text);
void str_add_bytes(struct str *s, const void *bytes, size_t len_bytes);
void str_add_char(struct str *s, char c);
void str_printf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* 0, or ERR_NOMEM if any append was lost. */
int str_check(const struct str *s);

/* Hands over the bytes (never NULL on success; free with mem_free) and empties s. NULL when broken. */
char *str_take(struct str *s);
void str_free(struct str *s);

/* Whether `text` is `end`, or ends so. */
int str_ends_with(const char *text, const char *end);

#endif
