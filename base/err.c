/* Keeps the error text of each thread in a slot. */
#include "base/err.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
	struct err_id id;
	char text[ERR_TEXT_BYTES];
} slot;

static int this_process;
static atomic_uint_fast64_t numbers;

void err_process_set(int process)
{
	this_process = process;
}

/* FNV-1a. */
static uint64_t digest(uint64_t so_far, const char *text)
{
	for (; *text; text++)
		so_far = (so_far ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return so_far;
}

/* A text that is too long loses its middle, because the reason stands at its end. `text` holds its begin. */
static void keep_end(char text[ERR_TEXT_BYTES], size_t len_bytes, const char *fmt, va_list ap)
{
	static const char gap[] = " ... ";
	const size_t begin = 600, kept = ERR_TEXT_BYTES - begin - sizeof(gap);
	char *whole = malloc(len_bytes + 1), *end; /* base/mem reports its failures here */
	size_t cut = begin;

	if (!whole)
		return;
	vsnprintf(whole, len_bytes + 1, fmt, ap);
	end = whole + len_bytes - kept;
	while ((*end & 0xc0) == 0x80) /* not inside a character */
		end++;
	while (cut > 0 && (text[cut] & 0xc0) == 0x80)
		cut--;
	text[cut] = 0;
	strcat(strcat(text, gap), end);
	free(whole);
}

static void text_set(const char *fmt, va_list ap)
{
	char text[ERR_TEXT_BYTES]; /* a copy, because the arguments may point into the slot */
	va_list again;
	int len;

	va_copy(again, ap);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	if (len < 0)
		text[0] = 0;
	if (len >= (int)sizeof(text))
		keep_end(text, (size_t)len, fmt, again);
	va_end(again);
	memcpy(slot.text, text, strlen(text) + 1);
}

int err_setv(int code, const char *fmt, va_list ap)
{
	text_set(fmt, ap);
	slot.id = (struct err_id){this_process, atomic_fetch_add(&numbers, 1) + 1,
	        digest(UINT64_C(0xcbf29ce484222325) ^ (unsigned)code, slot.text)};
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

int err_reword(int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	text_set(fmt, ap);
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
	slot.id.cause = digest(slot.id.cause, text);
	len = strlen(text);
	text[len++] = ':';
	text[len++] = ' ';
	rest = strlen(slot.text);
	if (len + rest < sizeof(text)) {
		memcpy(text + len, slot.text, rest + 1);
		memcpy(slot.text, text, len + rest + 1);
	} else {
		text[len - 2] = 0;
		err_reword(code, "%s: %s", text, slot.text);
	}
	return code;
}

struct err_id err_identity(void)
{
	return slot.id;
}

int err_same(struct err_id a, struct err_id b)
{
	return a.number && a.number == b.number && a.process == b.process;
}

const char *err_text(void)
{
	return slot.text;
}

void err_take(struct err *e, int code)
{
	if (e->code)
		return;
	e->code = code;
	e->id = slot.id;
	memcpy(e->text, slot.text, sizeof(slot.text));
}

int err_give(const struct err *e)
{
	if (e->code) {
		slot.id = e->id;
		memcpy(slot.text, e->text, sizeof(slot.text));
	}
	return e->code;
}
