/* A growing byte string. Zero-initialise to start; str_free at the end.
 *
 * Callers need not check each append. If memory runs out, the string is marked broken, later appends do
 * nothing, and str_check returns the error. `data` is NULL or NUL-terminated.
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

/* 0, or ERR_NOMEM if an append failed. */
int str_check(const struct str *s);

/* Gives the bytes to the caller (mem_free) and empties s. NULL, with ERR_NOMEM's text, if s is broken. */
char *str_take(struct str *s);
void str_free(struct str *s);

/* Whether `text` ends with `end`. */
int str_ends_with(const char *text, const char *end);

#endif
