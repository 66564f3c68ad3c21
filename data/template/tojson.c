/* Converts values to JSON as Python writes it. */
#include "data/template/tojson.h"

#include <stdio.h>
#include <string.h>

struct writer {
	struct render *r;
	struct sink sink;
	int ascii, sorted;
	const struct text *indent; /* NULL = one line */
	const struct text *item, *key;
};

static void write(struct writer *w, struct value v, int level);

static void write_text(struct writer *w, const struct text *t)
{
	const char *at = t->data, *end = at + t->len_bytes;
	char escape[16];
	int32_t c;

	sink_text(w->r->s, &w->sink, "\"");
	while (at < end) {
		static const char marks[] = "\"\\\n\r\t\f\b", names[] = "\"\\nrtfb";
		int len = char_at(at, end, &c);
		const char *found = c && c < 0x80 ? strchr(marks, c) : NULL;

		if (found)
			snprintf(escape, sizeof(escape), "\\%c", names[found - marks]);
		else if (c < 0x20 || (w->ascii && c > 0x7e && c < 0x10000))
			snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)c);
		else if (w->ascii && c >= 0x10000)
			snprintf(escape, sizeof(escape), "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (c >> 10)),
			        (unsigned)(0xdc00 + (c & 0x3ff)));
		else
			escape[0] = 0;
		if (escape[0])
			sink_text(w->r->s, &w->sink, escape);
		else
			sink_add(w->r->s, &w->sink, at, (size_t)len);
		at += len;
	}
	sink_text(w->r->s, &w->sink, "\"");
}

static void new_line(struct writer *w, int level)
{
	if (!w->indent)
		return;
	sink_text(w->r->s, &w->sink, "\n");
	for (int i = 0; i < level; i++)
		sink_add(w->r->s, &w->sink, w->indent->data, w->indent->len_bytes);
}

static void between(struct writer *w, int64_t i, int level)
{
	if (i)
		sink_add(w->r->s, &w->sink, w->item->data, w->item->len_bytes);
	new_line(w, level);
}

static void write_scalar(struct writer *w, struct value v)
{
	if (v.kind == VALUE_NONE)
		sink_text(w->r->s, &w->sink, "null");
	else if (v.kind == VALUE_BOOL)
		sink_text(w->r->s, &w->sink, v.u.i ? "true" : "false");
	else if (v.kind == VALUE_FLOAT && v.u.f != v.u.f)
		sink_text(w->r->s, &w->sink, "NaN");
	else if (v.kind == VALUE_FLOAT && v.u.f - v.u.f != 0)
		sink_text(w->r->s, &w->sink, v.u.f > 0 ? "Infinity" : "-Infinity");
	else
		value_write(w->r->s, &w->sink, v);
}

static void write_key(struct writer *w, struct value key)
{
	int quoted = key.kind == VALUE_TEXT;

	if (!quoted && key.kind != VALUE_NONE && !value_is_number(key))
		sandbox_fail(w->r->s, "tojson: a key of kind %s is not supported", value_kind_name(key));
	if (quoted) {
		write_text(w, key.u.text);
	} else {
		sink_text(w->r->s, &w->sink, "\"");
		write_scalar(w, key);
		sink_text(w->r->s, &w->sink, "\"");
	}
	sink_add(w->r->s, &w->sink, w->key->data, w->key->len_bytes);
}

/* The order of keys. Insertion sort: dicts of templates are small. */
static int64_t *key_order(struct writer *w, const struct dict *d)
{
	int64_t *order = sandbox_alloc(w->r->s, (size_t)d->count, sizeof(*order)), k;

	for (int64_t i = 0; i < d->count; i++) {
		for (k = i;
		        w->sorted && k > 0 && value_compare(w->r->s, d->keys[order[k - 1]], d->keys[i]) > 0;
		        k--)
			order[k] = order[k - 1];
		order[k] = i;
	}
	return order;
}

static void write_dict(struct writer *w, const struct dict *d, int level)
{
	int64_t *order = key_order(w, d);

	sink_text(w->r->s, &w->sink, "{");
	for (int64_t i = 0; i < d->count; i++) {
		between(w, i, level + 1);
		write_key(w, d->keys[order[i]]);
		write(w, d->values[order[i]], level + 1);
	}
	if (d->count)
		new_line(w, level);
	sink_text(w->r->s, &w->sink, "}");
}

static void write(struct writer *w, struct value v, int level)
{
	sandbox_enter(w->r->s);
	if (v.kind == VALUE_TEXT) {
		write_text(w, v.u.text);
	} else if (v.kind == VALUE_DICT) {
		write_dict(w, v.u.dict, level);
	} else if (v.kind == VALUE_LIST && v.u.list->kind <= LIST_TUPLE) {
		sink_text(w->r->s, &w->sink, "[");
		for (int64_t i = 0; i < v.u.list->count; i++) {
			between(w, i, level + 1);
			write(w, v.u.list->items[i], level + 1);
		}
		if (v.u.list->count)
			new_line(w, level);
		sink_text(w->r->s, &w->sink, "]");
	} else if (v.kind == VALUE_NONE || value_is_number(v)) {
		write_scalar(w, v);
	} else {
		sandbox_fail(w->r->s, "tojson: a value of kind %s is not supported", value_kind_name(v));
	}
	sandbox_leave(w->r->s);
}

struct value tojson(struct render *r, struct value v, const struct value *arg)
{
	struct writer w = {.r = r, .ascii = argument_flag(arg[0], 0), .sorted = argument_flag(arg[3], 0)};
	struct sink spaces = {0};

	if (arg[1].kind == VALUE_TEXT) {
		w.indent = arg[1].u.text;
	} else if (arg[1].kind != VALUE_ABSENT && arg[1].kind != VALUE_NONE) {
		for (int64_t i = argument_int(r, arg[1], 0); i > 0; i--)
			sink_text(r->s, &spaces, " ");
		w.indent = sink_value(r->s, &spaces).u.text;
	}
	w.item = value_text(r->s, w.indent ? "," : ", ", w.indent ? 1 : 2).u.text;
	w.key = value_text(r->s, ": ", 2).u.text;
	if (arg[2].kind == VALUE_LIST && arg[2].u.list->count == 2) {
		w.item = argument_text(r, arg[2].u.list->items[0], "a separator");
		w.key = argument_text(r, arg[2].u.list->items[1], "a separator");
	} else if (arg[2].kind != VALUE_ABSENT && arg[2].kind != VALUE_NONE) {
		sandbox_fail(r->s, "tojson: separators must be two texts");
	}
	write(&w, v, 0);
	return sink_value(r->s, &w.sink);
}
