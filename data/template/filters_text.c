/* Filters with a text as result, and some for any value. */
#include "data/template/render.h"
#include "data/template/tojson.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FILTER(name)                                                                                         \
	static struct value name(                                                                            \
	        struct render *r, struct value self, const struct value *arg, const struct arguments *all)
#define UNUSED (void)r, (void)self, (void)arg, (void)all

static struct value of_text(struct text *t)
{
	return (struct value){.kind = VALUE_TEXT, .u.text = t};
}

FILTER(filter_string)
{
	UNUSED;
	return of_text(value_str(r->s, self));
}

FILTER(filter_trim)
{
	const struct text *chars = arg[0].kind == VALUE_ABSENT || arg[0].kind == VALUE_NONE
	                                   ? NULL
	                                   : argument_text(r, arg[0], "chars");

	UNUSED;
	return text_strip(r->s, value_str(r->s, self), chars, TEXT_BOTH);
}

FILTER(filter_upper)
{
	UNUSED;
	return text_recase(r->s, value_str(r->s, self), TEXT_UPPER);
}

FILTER(filter_lower)
{
	UNUSED;
	return text_recase(r->s, value_str(r->s, self), TEXT_LOWER);
}

FILTER(filter_capitalize)
{
	UNUSED;
	return text_recase(r->s, value_str(r->s, self), TEXT_CAPITALIZE);
}

/* A word begins only after white space, a hyphen or an opening bracket. */
FILTER(filter_title)
{
	const struct text *t = value_str(r->s, self);
	const char *at = t->data, *end = at + t->len_bytes;
	struct sink sink = {0};
	int32_t c;

	UNUSED;
	while (at < end) {
		const char *word = at;
		struct value part;
		int border = 0;

		while (at < end) {
			int len = char_at(at, end, &c);

			border = char_is_space(c) || (c < 0x80 && strchr("-({[<", c));
			if (border)
				break;
			at += len;
		}
		part = value_text(r->s, word, (size_t)(at - word));
		part = text_recase(r->s, part.u.text, TEXT_CAPITALIZE);
		sink_add(r->s, &sink, part.u.text->data, part.u.text->len_bytes);
		if (border) {
			int len = char_at(at, end, &c);

			sink_add(r->s, &sink, at, (size_t)len);
			at += len;
		}
	}
	return sink_value(r->s, &sink);
}

FILTER(filter_replace)
{
	struct text *t = value_str(r->s, self), *old = value_str(r->s, arg[0]),
	            *new = value_str(r->s, arg[1]);
	struct value values[] = {of_text(old), of_text(new), arg[2].kind == VALUE_NONE ? ABSENT : arg[2]};

	UNUSED;
	return builtin_find(methods_of_texts, "replace")->call(r, of_text(t), values, all);
}

FILTER(filter_escape)
{
	const struct text *t = value_str(r->s, self);
	struct sink sink = {0};
	struct value out;

	UNUSED;
	if (t->markup)
		return self;
	for (size_t i = 0; i < t->len_bytes; i++) {
		static const char marks[] = "&<>'\"";
		static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
		const char *found = t->data[i] ? strchr(marks, t->data[i]) : NULL;

		if (found)
			sink_text(r->s, &sink, names[found - marks]);
		else
			sink_add(r->s, &sink, t->data + i, 1);
	}
	out = sink_value(r->s, &sink);
	out.u.text->markup = 1;
	return out;
}

FILTER(filter_safe)
{
	const struct text *t = value_str(r->s, self);
	struct value out = value_text_of(r->s, t->data, t->len_bytes);

	UNUSED;
	out.u.text->markup = 1;
	return out;
}

/* Indents the lines of a text. By default, the first line and empty lines stay. */
FILTER(filter_indent)
{
	static const struct arguments none;
	struct text *t = argument_text(r, self, "what indent is given");
	int first = argument_flag(arg[1], 0), blank = argument_flag(arg[2], 0);
	struct sink ended = {0}, sink = {0}, indent = {0};
	struct list *lines;

	UNUSED;
	if (arg[0].kind == VALUE_TEXT)
		sink_add(r->s, &indent, arg[0].u.text->data, arg[0].u.text->len_bytes);
	else
		for (int64_t i = argument_int(r, arg[0], 4); i > 0; i--)
			sink_text(r->s, &indent, " ");
	sink_add(r->s, &ended, t->data, t->len_bytes);
	sink_text(r->s, &ended, "\n");
	lines = builtin_call(r, builtin_find(methods_of_texts, "splitlines"), sink_value(r->s, &ended), &none)
	                .u.list;
	for (int64_t i = 0; i < lines->count; i++) {
		const struct text *line = lines->items[i].u.text;

		sink_text(r->s, &sink, i ? "\n" : "");
		if (i ? blank || line->len_bytes : first)
			sink_add(r->s, &sink, indent.data ? indent.data : "", indent.len_bytes);
		sink_add(r->s, &sink, line->data, line->len_bytes);
	}
	return sink_value(r->s, &sink);
}

FILTER(filter_truncate)
{
	struct text *t = value_str(r->s, self);
	int64_t length = argument_int(r, arg[0], 255),
	        leeway = arg[3].kind == VALUE_NONE ? 5 : argument_int(r, arg[3], 5);
	struct text *end =
	        arg[2].kind == VALUE_ABSENT ? value_text(r->s, "...", 3).u.text : value_str(r->s, arg[2]);
	struct text space = {.data = " ", .len_bytes = 1, .char_count = 1};
	struct text kept = *t;
	struct sink sink = {0};
	int64_t at;

	UNUSED;
	if (length < text_length(end) || leeway < 0)
		sandbox_fail(r->s, "truncate: the length %" PRId64 " is too short", length);
	if (text_length(t) - length <= leeway)
		return of_text(t);
	kept.len_bytes = text_offset(t, length - text_length(end));
	if (!argument_flag(arg[1], 0)) {
		at = text_find_last(&kept, &space, kept.len_bytes);
		if (at >= 0)
			kept.len_bytes = (size_t)at;
	}
	sink_add(r->s, &sink, kept.data, kept.len_bytes);
	sink_add(r->s, &sink, end->data, end->len_bytes);
	return sink_value(r->s, &sink);
}

FILTER(filter_center)
{
	struct value values[] = {arg[0].kind == VALUE_ABSENT ? value_int(80) : arg[0], ABSENT};

	UNUSED;
	return builtin_find(methods_of_texts, "center")->call(r, of_text(value_str(r->s, self)), values, all);
}

FILTER(filter_wordcount)
{
	const struct text *t = value_str(r->s, self);
	const char *at = t->data, *end = at + t->len_bytes;
	int64_t count = 0;
	int in_word = 0;
	int32_t c;

	UNUSED;
	while (at < end) {
		at += char_at(at, end, &c);
		int is_word = c > 0x7f ? char_is_printable(c) && !char_is_space(c) : isalnum(c) || c == '_';

		count += is_word && !in_word;
		in_word = is_word;
	}
	return value_int(count);
}

FILTER(filter_format)
{
	UNUSED;
	return format_percent(r, value_str(r->s, self), all);
}

FILTER(filter_urlencode)
{
	const struct text *t = value_str(r->s, self);
	struct sink sink = {0};
	char code[4];

	UNUSED;
	for (size_t i = 0; i < t->len_bytes; i++) {
		unsigned char c = (unsigned char)t->data[i];

		snprintf(code, sizeof(code), isalnum(c) || (c && strchr("_.-~/", c)) ? "%c" : "%%%02X", c);
		sink_text(r->s, &sink, code);
	}
	return sink_value(r->s, &sink);
}

FILTER(filter_tojson)
{
	UNUSED;
	return tojson(r, self, arg);
}

FILTER(filter_default)
{
	UNUSED;
	if (self.kind == VALUE_UNDEFINED || (argument_flag(arg[1], 0) && !value_truth(self)))
		return arg[0].kind == VALUE_ABSENT ? value_text(r->s, "", 0) : arg[0];
	return self;
}

FILTER(filter_length)
{
	UNUSED;
	return value_int(value_length(r->s, self));
}

FILTER(filter_attr)
{
	struct value found;

	UNUSED;
	if (self.kind == VALUE_DICT) { /* items of a dict are not attributes */
		struct value empty = value_dict(r->s);

		return eval_attribute(r, empty, argument_text(r, arg[0], "name"));
	}
	found = eval_attribute(r, self, argument_text(r, arg[0], "name"));
	return found;
}

const struct builtin filters_of_texts[] = {
        {"attr", "name!", filter_attr},
        {"capitalize", "", filter_capitalize},
        {"center", "width", filter_center},
        {"count", "", filter_length},
        {"d", "default_value boolean", filter_default},
        {"default", "default_value boolean", filter_default},
        {"e", "", filter_escape},
        {"escape", "", filter_escape},
        {"forceescape", "", filter_escape},
        {"format", NULL, filter_format},
        {"indent", "width first blank", filter_indent},
        {"length", "", filter_length},
        {"lower", "", filter_lower},
        {"replace", "old! new! count", filter_replace},
        {"safe", "", filter_safe},
        {"string", "", filter_string},
        {"title", "", filter_title},
        {"tojson", "ensure_ascii indent separators sort_keys", filter_tojson},
        {"trim", "chars", filter_trim},
        {"truncate", "length killwords end leeway", filter_truncate},
        {"upper", "", filter_upper},
        {"urlencode", "", filter_urlencode},
        {"wordcount", "", filter_wordcount},
        {0},
};
