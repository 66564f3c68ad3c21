/* Texts of a template: characters, case, white space, and values as text. */
#include "data/template/value.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

int char_at(const char *at, const char *end, int32_t *c)
{
	utf8proc_ssize_t len = utf8proc_iterate((const utf8proc_uint8_t *)at, end - at, c);

	if (len > 0)
		return (int)len;
	*c = (unsigned char)*at; /* invalid UTF-8 in a template's file */
	return 1;
}

int64_t text_length(struct text *t)
{
	int64_t count = 0;

	if (t->char_count >= 0)
		return t->char_count;
	for (size_t i = 0; i < t->len_bytes; i++)
		count += ((unsigned char)t->data[i] & 0xc0) != 0x80;
	t->char_count = count;
	return count;
}

size_t text_offset(struct text *t, int64_t at)
{
	size_t i = 0;

	if (text_length(t) == (int64_t)t->len_bytes)
		return (size_t)at;
	for (; i < t->len_bytes; i++)
		if (((unsigned char)t->data[i] & 0xc0) != 0x80 && at-- == 0)
			break;
	return i;
}

int char_is_space(int32_t c)
{
	if (c < 0x80)
		return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
	return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
	       c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

int char_is_printable(int32_t c)
{
	switch (utf8proc_category(c)) {
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CS:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_CN:
	case UTF8PROC_CATEGORY_ZL:
	case UTF8PROC_CATEGORY_ZP:
		return 0;
	case UTF8PROC_CATEGORY_ZS:
		return c == ' ';
	default:
		return 1;
	}
}

static void sink_char(struct sandbox *s, struct sink *sink, int32_t c)
{
	utf8proc_uint8_t bytes[4];

	sink_add(s, sink, (const char *)bytes, (size_t)utf8proc_encode_char(c, bytes));
}

static int is_cased(int32_t c)
{
	return utf8proc_tolower(c) != c || utf8proc_toupper(c) != c;
}

struct value text_recase(struct sandbox *s, const struct text *t, enum text_case to)
{
	const char *at = t->data, *end = at + t->len_bytes;
	struct sink sink = {0};
	int in_word = 0, first = 1;
	int32_t c;

	while (at < end) {
		int upper = to == TEXT_UPPER || (to == TEXT_CAPITALIZE && first) ||
		            (to == TEXT_TITLE && !in_word);

		at += char_at(at, end, &c);
		if (to == TEXT_SWAP)
			upper = utf8proc_tolower(c) == c;
		in_word = is_cased(c);
		if (upper && c == 0xdf)
			sink_text(s, &sink, to == TEXT_UPPER || to == TEXT_SWAP ? "SS" : "Ss");
		else if (upper)
			sink_char(s, &sink,
			        to == TEXT_UPPER || to == TEXT_SWAP ? utf8proc_toupper(c)
			                                            : utf8proc_totitle(c));
		else
			sink_char(s, &sink, utf8proc_tolower(c));
		first = 0;
	}
	return sink_value(s, &sink);
}

static int is_among(int32_t c, const struct text *chars)
{
	const char *at = chars->data, *end = at + chars->len_bytes;
	int32_t other;

	while (at < end) {
		at += char_at(at, end, &other);
		if (other == c)
			return 1;
	}
	return 0;
}

struct value text_strip(
        struct sandbox *s, const struct text *t, const struct text *chars, enum text_side side)
{
	const char *from = t->data, *to = from + t->len_bytes;
	int32_t c;

	while (side & TEXT_LEFT && from < to) {
		int len = char_at(from, to, &c);

		if (!(chars ? is_among(c, chars) : char_is_space(c)))
			break;
		from += len;
	}
	while (side & TEXT_RIGHT && from < to) {
		const char *at = to - 1;

		while (at > from && ((unsigned char)*at & 0xc0) == 0x80)
			at--;
		char_at(at, to, &c);
		if (!(chars ? is_among(c, chars) : char_is_space(c)))
			break;
		to = at;
	}
	sandbox_step(s, (int64_t)(t->len_bytes / 1024));
	return value_text(s, from, (size_t)(to - from));
}

int64_t text_find(const struct text *t, const struct text *needle, size_t from)
{
	const char *found;

	if (from > t->len_bytes)
		return -1;
	if (!needle->len_bytes)
		return (int64_t)from;
	found = memmem(t->data + from, t->len_bytes - from, needle->data, needle->len_bytes);
	return found ? found - t->data : -1;
}

int64_t text_find_last(const struct text *t, const struct text *needle, size_t before)
{
	if (needle->len_bytes > t->len_bytes)
		return -1;
	if (before > t->len_bytes - needle->len_bytes)
		before = t->len_bytes - needle->len_bytes;
	for (int64_t at = (int64_t)before; at >= 0; at--)
		if (!memcmp(t->data + at, needle->data, needle->len_bytes))
			return at;
	return -1;
}

/* ---- a growing text ---- */

void sink_add(struct sandbox *s, struct sink *sink, const char *data, size_t len_bytes)
{
	sandbox_step(s, 1 + (int64_t)(len_bytes / 1024));
	if (sink->len_bytes + len_bytes + 1 > sink->cap_bytes) {
		size_t cap = (sink->len_bytes + len_bytes) * 2 + 32;
		char *grown = sandbox_alloc(s, cap, 1);

		if (sink->len_bytes)
			memcpy(grown, sink->data, sink->len_bytes);
		sink->data = grown;
		sink->cap_bytes = cap;
	}
	if (len_bytes)
		memcpy(sink->data + sink->len_bytes, data, len_bytes);
	sink->len_bytes += len_bytes;
	sink->data[sink->len_bytes] = 0;
}

void sink_text(struct sandbox *s, struct sink *sink, const char *text)
{
	sink_add(s, sink, text, strlen(text));
}

struct value sink_value(struct sandbox *s, struct sink *sink)
{
	return value_text_of(s, sink->data ? sink->data : "", sink->len_bytes);
}

/* ---- values as text ---- */

/* Like Python: the fewest digits that read back as the same number. */
void float_write(char out[FLOAT_BYTES], double f)
{
	char digits[32], *mark;
	int precision = 0, exponent;

	if (isnan(f) || isinf(f)) {
		snprintf(out, FLOAT_BYTES, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
		return;
	}
	do
		snprintf(digits, sizeof(digits), "%.*e", precision, f);
	while (strtod(digits, NULL) != f && precision++ < 17);
	mark = strchr(digits, 'e');
	exponent = atoi(mark + 1);
	if (exponent >= -4 && exponent < 16) {
		snprintf(out, FLOAT_BYTES, "%.*f", precision > exponent ? precision - exponent : 0, f);
		if (!strchr(out, '.'))
			strcat(out, ".0");
	} else {
		*mark = 0;
		snprintf(out, FLOAT_BYTES, "%.30se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
	}
}

static void write_quoted(struct sandbox *s, struct sink *sink, const struct text *t)
{
	const char *at = t->data, *end = at + t->len_bytes;
	char quote = memchr(at, '\'', t->len_bytes) && !memchr(at, '"', t->len_bytes) ? '"' : '\'';
	char escape[16];
	int32_t c;

	sink_add(s, sink, &quote, 1);
	while (at < end) {
		int len = char_at(at, end, &c);

		if (c == quote || c == '\\')
			snprintf(escape, sizeof(escape), "\\%c", (char)c);
		else if (c == '\n' || c == '\r' || c == '\t')
			snprintf(escape, sizeof(escape), "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
		else if (char_is_printable(c))
			snprintf(escape, sizeof(escape), "%.*s", len, at);
		else
			snprintf(escape, sizeof(escape),
			        c < 0x100     ? "\\x%02x"
			        : c < 0x10000 ? "\\u%04x"
			                      : "\\U%08x",
			        (unsigned)c);
		sink_text(s, sink, escape);
		at += len;
	}
	sink_add(s, sink, &quote, 1);
}

static void write_list(struct sandbox *s, struct sink *sink, const struct list *list)
{
	static const char *const open[] = {[LIST_LIST] = "[",
	        [LIST_TUPLE] = "(",
	        [LIST_KEYS] = "dict_keys([",
	        [LIST_VALUES] = "dict_values([",
	        [LIST_ITEMS] = "dict_items(["};
	static const char *const close[] = {[LIST_LIST] = "]",
	        [LIST_TUPLE] = ")",
	        [LIST_KEYS] = "])",
	        [LIST_VALUES] = "])",
	        [LIST_ITEMS] = "])"};

	if (list->kind == LIST_GENERATOR || list->kind == LIST_RANGE) {
		sink_text(s, sink, list->kind == LIST_RANGE ? "<range>" : "<generator object>");
		return;
	}
	sink_text(s, sink, open[list->kind]);
	for (int64_t i = 0; i < list->count; i++) {
		sink_text(s, sink, i ? ", " : "");
		value_write_repr(s, sink, list->items[i]);
	}
	sink_text(s, sink, list->kind == LIST_TUPLE && list->count == 1 ? "," : "");
	sink_text(s, sink, close[list->kind]);
}

static void write_dict(struct sandbox *s, struct sink *sink, const struct dict *d)
{
	sink_text(s, sink, "{");
	for (int64_t i = 0; i < d->count; i++) {
		sink_text(s, sink, i ? ", " : "");
		value_write_repr(s, sink, d->keys[i]);
		sink_text(s, sink, ": ");
		value_write_repr(s, sink, d->values[i]);
	}
	sink_text(s, sink, "}");
}

void value_write_repr(struct sandbox *s, struct sink *sink, struct value v)
{
	if (v.kind == VALUE_TEXT && v.u.text->markup) {
		sink_text(s, sink, "Markup(");
		write_quoted(s, sink, v.u.text);
		sink_text(s, sink, ")");
	} else if (v.kind == VALUE_TEXT) {
		write_quoted(s, sink, v.u.text);
	} else if (v.kind == VALUE_UNDEFINED) {
		sink_text(s, sink, "Undefined");
	} else {
		value_write(s, sink, v);
	}
}

void value_write(struct sandbox *s, struct sink *sink, struct value v)
{
	char number[FLOAT_BYTES];

	sandbox_enter(s);
	switch (v.kind) {
	case VALUE_UNDEFINED:
	case VALUE_ABSENT:
		break;
	case VALUE_NONE:
		sink_text(s, sink, "None");
		break;
	case VALUE_BOOL:
		sink_text(s, sink, v.u.i ? "True" : "False");
		break;
	case VALUE_INT:
		snprintf(number, sizeof(number), "%" PRId64, v.u.i);
		sink_text(s, sink, number);
		break;
	case VALUE_FLOAT:
		float_write(number, v.u.f);
		sink_text(s, sink, number);
		break;
	case VALUE_TEXT:
	case VALUE_BIG:
		sink_add(s, sink, v.u.text->data, v.u.text->len_bytes);
		break;
	case VALUE_LIST:
		write_list(s, sink, v.u.list);
		break;
	case VALUE_NAMESPACE:
		sink_text(s, sink, "<Namespace ");
		write_dict(s, sink, v.u.dict);
		sink_text(s, sink, ">");
		break;
	case VALUE_DICT:
		write_dict(s, sink, v.u.dict);
		break;
	default:
		sink_text(s, sink, "<");
		sink_text(s, sink, value_kind_name(v));
		sink_text(s, sink, ">");
	}
	sandbox_leave(s);
}

struct text *value_str(struct sandbox *s, struct value v)
{
	struct sink sink = {0};

	if (v.kind == VALUE_TEXT)
		return v.u.text;
	value_write(s, &sink, v);
	return sink_value(s, &sink).u.text;
}
