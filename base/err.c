/* Error texts: one slot for each thread. */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char slot[ERR_TEXT_BYTES];

int err_setv(int code, const char *fmt, va_list ap)
{
	char text[ERR_TEXT_BYTES]; /* the arguments may point into the slot */

	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = 0;
	memcpy(slot, text, strlen(text) + 1);
	return code;
}

int err_set(int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_setv(code, fmt, ap);
	va_end(ap);
	return code;
}

int err_note(int code, const char *fmt, ...)
{
	char text[ERR_TEXT_BYTES];
	size_t len, rest;
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text) - 2, fmt, ap) < 0)
		text[0] = 0;
	va_end(ap);
	len = strlen(text);
	text[len++] = ':';
	text[len++] = ' ';
	rest = strnlen(slot, sizeof(text) - 1 - len);
	memcpy(text + len, slot, rest);
	text[len + rest] = 0;
	memcpy(slot, text, len + rest + 1);
	return code;
}

const char *err_text(void)
{
	return slot;
}

void err_take(struct err *e, int code)
{
	if (e->code)
		return;
	e->code = code;
	memcpy(e->text, slot, sizeof(slot));
}

int err_give(const struct err *e)
{
	if (e->code)
		memcpy(slot, e->text, sizeof(slot));
	return e->code;
}
