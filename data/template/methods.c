/* Methods of texts. */
#include "data/template/method.h"

#include <string.h>

#include <utf8proc.h>

static struct value strip(struct render *r, struct value self, const struct value *arg, enum text_side side)
{
	return text_strip(
	        r->s, self.u.text, given(arg[0]) ? argument_text(r, arg[0], "strip's argument") : NULL, side);
}

static METHOD(method_strip)
{
	UNUSED;
	return strip(r, self, arg, TEXT_BOTH);
}

static METHOD(method_lstrip)
{
	UNUSED;
	return strip(r, self, arg, TEXT_LEFT);
}

static METHOD(method_rstrip)
{
	UNUSED;
	return strip(r, self, arg, TEXT_RIGHT);
}

#define RECASE(name, to)                                                                                     \
	static METHOD(name)                                                                                  \
	{                                                                                                    \
		UNUSED;                                                                                      \
		return text_recase(r->s, self.u.text, to);                                                   \
	}
RECASE(method_upper, TEXT_UPPER)
RECASE(method_lower, TEXT_LOWER)
RECASE(method_capitalize, TEXT_CAPITALIZE)
RECASE(method_title, TEXT_TITLE)
RECASE(method_swapcase, TEXT_SWAP)

/* ---- looking ---- */

/* Converts character positions start and end to bytes [from, to). */
static int range_of(
        struct render *r, struct text *t, struct value start, struct value end, size_t *from, size_t *to)
{
	int64_t count = text_length(t), a = 0, b = count;

	if (given(start))
		a = start.kind == VALUE_BIG ? number_index(start) : argument_int(r, start, 0);
	if (given(end))
		b = end.kind == VALUE_BIG ? number_index(end) : argument_int(r, end, 0);

	a = a < 0 ? (a + count < 0 ? 0 : a + count) : a;
	b = b < 0 ? (b + count < 0 ? 0 : b + count) : b > count ? count : b;
	if (a > b)
		return 0;
	*from = text_offset(t, a);
	*to = text_offset(t, b);
	return 1;
}

static int matches_at(const struct text *t, const struct text *what, size_t from, size_t to, int at_end)
{
	if (what->len_bytes > to - from)
		return 0;
	return !memcmp(t->data + (at_end ? to - what->len_bytes : from), what->data, what->len_bytes);
}

static struct value begins_or_ends(struct render *r, struct value self, const struct value *arg, int at_end)
{
	size_t from, to;

	if (!range_of(r, self.u.text, arg[1], arg[2], &from, &to))
		return value_bool(0);
	if (arg[0].kind == VALUE_LIST && arg[0].u.list->kind == LIST_TUPLE) {
		for (int64_t i = 0; i < arg[0].u.list->count; i++)
			if (matches_at(self.u.text, argument_text(r, arg[0].u.list->items[i], "a prefix"),
			            from, to, at_end))
				return value_bool(1);
		return value_bool(0);
	}
	return value_bool(matches_at(self.u.text, argument_text(r, arg[0], "a prefix"), from, to, at_end));
}

static METHOD(method_startswith)
{
	UNUSED;
	return begins_or_ends(r, self, arg, 0);
}

static METHOD(method_endswith)
{
	UNUSED;
	return begins_or_ends(r, self, arg, 1);
}

/* The character position of a match, or -1. */
static int64_t find(struct render *r, struct value self, const struct value *arg, int from_right)
{
	const struct text *what = argument_text(r, arg[0], "what is looked for");
	struct text part = *self.u.text;
	size_t from, to;
	int64_t found;

	if (!range_of(r, self.u.text, arg[1], arg[2], &from, &to))
		return -1;
	part.len_bytes = to;
	found = from_right ? text_find_last(&part, what, to) : text_find(&part, what, from);
	if (found < (int64_t)from)
		return -1;
	part.len_bytes = (size_t)found;
	part.char_count = -1;
	return text_length(&part);
}

static METHOD(method_find)
{
	UNUSED;
	return value_int(find(r, self, arg, 0));
}

static METHOD(method_rfind)
{
	UNUSED;
	return value_int(find(r, self, arg, 1));
}

static METHOD(method_index)
{
	int64_t found = find(r, self, arg, 0);

	UNUSED;
	if (found < 0)
		sandbox_fail(r->s, "index: the text was not found");
	return value_int(found);
}

static METHOD(method_rindex)
{
	int64_t found = find(r, self, arg, 1);

	UNUSED;
	if (found < 0)
		sandbox_fail(r->s, "rindex: the text was not found");
	return value_int(found);
}

static METHOD(method_count)
{
	const struct text *what = argument_text(r, arg[0], "what is counted");
	struct text part = *self.u.text;
	size_t from, to;
	int64_t count = 0, found;

	UNUSED;
	if (!range_of(r, self.u.text, arg[1], arg[2], &from, &to))
		return value_int(0);
	part.len_bytes = to;
	part.data += from;
	part.len_bytes -= from;
	part.char_count = -1;
	if (!what->len_bytes)
		return value_int(text_length(&part) + 1);
	for (found = 0; (found = text_find(&part, what, (size_t)found)) >= 0;
	        found += (int64_t)what->len_bytes)
		count++;
	return value_int(count);
}

static METHOD(method_replace)
{
	const struct text *t = self.u.text, *old = argument_text(r, arg[0], "replace's argument");
	const struct text *new = argument_text(r, arg[1], "replace's argument");
	int64_t most = argument_int(r, arg[2], -1), found;
	struct sink sink = {0};
	size_t from = 0;

	UNUSED;
	most = most < 0 ? INT64_MAX : most;
	if (!old->len_bytes) { /* "": insert around every character */
		struct list *chars = value_items(r->s, self);

		for (int64_t i = 0; i <= chars->count; i++) {
			if (i < most)
				sink_add(r->s, &sink, new->data, new->len_bytes);
			if (i < chars->count)
				sink_add(r->s, &sink, chars->items[i].u.text->data,
				        chars->items[i].u.text->len_bytes);
		}
		return sink_value(r->s, &sink);
	}
	while (most-- != 0 && (found = text_find(t, old, from)) >= 0) {
		sink_add(r->s, &sink, t->data + from, (size_t)found - from);
		sink_add(r->s, &sink, new->data, new->len_bytes);
		from = (size_t)found + old->len_bytes;
	}
	sink_add(r->s, &sink, t->data + from, t->len_bytes - from);
	return sink_value(r->s, &sink);
}

static METHOD(method_removeprefix)
{
	const struct text *t = self.u.text, *what = argument_text(r, arg[0], "the prefix");

	UNUSED;
	return matches_at(t, what, 0, t->len_bytes, 0) ? piece(r, t, what->len_bytes, t->len_bytes) : self;
}

static METHOD(method_removesuffix)
{
	const struct text *t = self.u.text, *what = argument_text(r, arg[0], "the suffix");

	UNUSED;
	return matches_at(t, what, 0, t->len_bytes, 1) ? piece(r, t, 0, t->len_bytes - what->len_bytes)
	                                               : self;
}

/* ---- building ---- */

static METHOD(method_join)
{
	const struct list *items = value_items(r->s, arg[0]);
	struct sink sink = {0};

	UNUSED;
	for (int64_t i = 0; i < items->count; i++) {
		const struct text *part = argument_text(r, items->items[i], "each element of join");

		if (i)
			sink_add(r->s, &sink, self.u.text->data, self.u.text->len_bytes);
		sink_add(r->s, &sink, part->data, part->len_bytes);
	}
	return sink_value(r->s, &sink);
}

static METHOD(method_format)
{
	UNUSED;
	return format_braces(r, self.u.text, all);
}

static struct value pad(
        struct render *r, struct value self, const struct value *arg, int64_t left, int64_t right)
{
	const struct text *fill = given(arg[1]) ? argument_text(r, arg[1], "the fill") : NULL;
	struct sink sink = {0};

	for (int64_t i = 0; i < left; i++)
		sink_add(r->s, &sink, fill ? fill->data : " ", fill ? fill->len_bytes : 1);
	sink_add(r->s, &sink, self.u.text->data, self.u.text->len_bytes);
	for (int64_t i = 0; i < right; i++)
		sink_add(r->s, &sink, fill ? fill->data : " ", fill ? fill->len_bytes : 1);
	return sink_value(r->s, &sink);
}

/* How many characters a text lacks; a width below 0 is 0. */
static int64_t room_in(struct render *r, struct value self, struct value width)
{
	int64_t wanted = argument_int(r, width, 0);

	return wanted > 0 ? wanted - text_length(self.u.text) : 0;
}

static METHOD(method_ljust)
{
	UNUSED;
	return pad(r, self, arg, 0, room_in(r, self, arg[0]));
}

static METHOD(method_rjust)
{
	UNUSED;
	return pad(r, self, arg, room_in(r, self, arg[0]), 0);
}

static METHOD(method_center)
{
	int64_t room = room_in(r, self, arg[0]), width = argument_int(r, arg[0], 0), left;

	UNUSED;
	left = room > 0 ? room / 2 + (room & width & 1) : 0;
	return pad(r, self, arg, left, room - left);
}

static METHOD(method_zfill)
{
	int64_t missing = room_in(r, self, arg[0]);
	const struct text *t = self.u.text;
	size_t sign = t->len_bytes && (t->data[0] == '-' || t->data[0] == '+');
	struct sink sink = {0};

	UNUSED;
	sink_add(r->s, &sink, t->data, sign);
	for (; missing > 0; missing--)
		sink_text(r->s, &sink, "0");
	sink_add(r->s, &sink, t->data + sign, t->len_bytes - sign);
	return sink_value(r->s, &sink);
}

/* ---- kinds of characters ---- */

static int is_letter(int32_t c)
{
	utf8proc_category_t category = utf8proc_category(c);

	return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

static int is_digit(int32_t c)
{
	return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}

static int is_alnum(int32_t c)
{
	return is_letter(c) || is_digit(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_NL ||
	       utf8proc_category(c) == UTF8PROC_CATEGORY_NO;
}

static struct value all_are(struct value self, int (*is)(int32_t c))
{
	const char *at = self.u.text->data, *end = at + self.u.text->len_bytes;
	int32_t c;

	if (at == end)
		return value_bool(0);
	while (at < end) {
		at += char_at(at, end, &c);
		if (!is(c))
			return value_bool(0);
	}
	return value_bool(1);
}

#define CHARACTERS(name, is)                                                                                 \
	static METHOD(name)                                                                                  \
	{                                                                                                    \
		UNUSED;                                                                                      \
		return all_are(self, is);                                                                    \
	}
CHARACTERS(method_isalpha, is_letter)
CHARACTERS(method_isdigit, is_digit)
CHARACTERS(method_isalnum, is_alnum)
CHARACTERS(method_isspace, char_is_space)

static METHOD(method_isupper)
{
	static const struct arguments none;

	UNUSED;
	return test_call(r, "upper", self, &none);
}

static METHOD(method_islower)
{
	static const struct arguments none;

	UNUSED;
	return test_call(r, "lower", self, &none);
}

const struct builtin methods_of_texts[] = {
        {"capitalize", "", method_capitalize},
        {"center", "width! fillchar", method_center},
        {"count", "sub! start end", method_count},
        {"endswith", "suffix! start end", method_endswith},
        {"find", "sub! start end", method_find},
        {"format", NULL, method_format},
        {"index", "sub! start end", method_index},
        {"isalnum", "", method_isalnum},
        {"isalpha", "", method_isalpha},
        {"isdecimal", "", method_isdigit},
        {"isdigit", "", method_isdigit},
        {"islower", "", method_islower},
        {"isnumeric", "", method_isdigit},
        {"isspace", "", method_isspace},
        {"isupper", "", method_isupper},
        {"join", "iterable!", method_join},
        {"ljust", "width! fillchar", method_ljust},
        {"lower", "", method_lower},
        {"lstrip", "chars", method_lstrip},
        {"partition", "sep!", method_partition},
        {"removeprefix", "prefix!", method_removeprefix},
        {"removesuffix", "suffix!", method_removesuffix},
        {"replace", "old! new! count", method_replace},
        {"rfind", "sub! start end", method_rfind},
        {"rindex", "sub! start end", method_rindex},
        {"rjust", "width! fillchar", method_rjust},
        {"rpartition", "sep!", method_rpartition},
        {"rsplit", "sep maxsplit", method_rsplit},
        {"rstrip", "chars", method_rstrip},
        {"split", "sep maxsplit", method_split},
        {"splitlines", "keepends", method_splitlines},
        {"startswith", "prefix! start end", method_startswith},
        {"strip", "chars", method_strip},
        {"swapcase", "", method_swapcase},
        {"title", "", method_title},
        {"upper", "", method_upper},
        {"zfill", "width!", method_zfill},
        {0},
};
