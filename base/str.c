/* A growing byte string. */
#include "base/str.h"

#include "base/err.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Makes room for len_bytes more and the NUL. */
static int str_reserve(struct str *s, size_t len_bytes)
{
	size_t need, cap;
	char *grown;

	if (s->broken)
		return ERR_NOMEM;
	if (__builtin_add_overflow(s->len_bytes, len_bytes, &need) || __builtin_add_overflow(need, 1, &need))
		goto broken;
	if (need <= s->cap_bytes)
		return 0;
	cap = s->cap_bytes < 32 ? 64 : s->cap_bytes * 2; /* blocks stay below PTRDIFF_MAX: no wrap */
	if (cap < need)
		cap = need;
	grown = mem_resize(s->data, cap, 1);
	if (!grown)
		goto broken;
	s->data = grown;
	s->cap_bytes = cap;
	return 0;
broken:
	s->broken = 1;
	return ERR_NOMEM;
}

void str_add_bytes(struct str *s, const void *bytes, size_t len_bytes)
{
	if (str_reserve(s, len_bytes))
		return;
	if (len_bytes)
		memcpy(s->data + s->len_bytes, bytes, len_bytes);
	s->len_bytes += len_bytes;
	s->data[s->len_bytes] = 0;
}

void str_add(struct str *s, const char *text)
{
	str_add_bytes(s, text, strlen(text));
}

void str_add_char(struct str *s, char c)
{
	str_add_bytes(s, &c, 1);
}

void str_printf(struct str *s, const char *fmt, ...)
{
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (len < 0) {
		s->broken = 1;
		return;
	}
	if (str_reserve(s, (size_t)len))
		return;
	va_start(ap, fmt);
	vsnprintf(s->data + s->len_bytes, (size_t)len + 1, fmt, ap);
	va_end(ap);
	s->len_bytes += (size_t)len;
}

int str_check(const struct str *s)
{
	if (s->broken)
		return err_set(ERR_NOMEM, "out of memory after %zu bytes of text", s->len_bytes);
	return 0;
}

char *str_take(struct str *s)
{
	char *data;

	if (!s->data)
		str_add_bytes(s, "", 0);
	if (str_check(s)) {
		str_free(s);
		return NULL;
	}
	data = s->data;
	memset(s, 0, sizeof(*s));
	return data;
}

void str_free(struct str *s)
{
	if (!s)
		return;
	mem_free(s->data);
	memset(s, 0, sizeof(*s));
}

int str_ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && !strcmp(text + len - end_len, end);
}
