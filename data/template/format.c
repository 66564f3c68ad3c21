/* The two ways to format: "%s" % x, and "{}".format(x). */
#include "data/template/render.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH_MAX = 10000 };

struct spec {
	const char *fill;
	size_t fill_bytes;
	char align; /* '<', '>', '^', or 0 */
	char sign;  /* '+', ' ', or 0 */
	int zero, alternate;
	int width, precision; /* precision -1 = none */
	char type;            /* 0 = none */
};

/* A number in C's format for this type; pad() does the rest of the spec. */
static struct value number_text(struct render *r, struct value v, const struct spec *spec)
{
	char format[16] = "%", out[512], sign[2] = {spec->sign},
	     letter[2] = {spec->type == '%' ? 'f' : spec->type};
	int precision = spec->precision < 0 ? 6 : spec->precision > 100 ? 100 : spec->precision;
	char type = spec->type;

	strcat(format, sign);
	if (spec->alternate)
		strcat(format, "#");
	if (strchr("diuoxXc", type)) {
		int64_t number = v.kind == VALUE_FLOAT ? (fabs(v.u.f) < 0x1p63 ? (int64_t)v.u.f : 0) : v.u.i;
		uint64_t size = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;

		if (type == 'd' || type == 'i' || type == 'u') {
			strcat(format, PRId64);
			snprintf(out, sizeof(out), format, number);
		} else { /* Python writes a minus, not a complement */
			snprintf(out, sizeof(out),
			        type == 'o'   ? (spec->alternate ? "%s0o%" PRIo64 : "%s%" PRIo64)
			        : type == 'x' ? (spec->alternate ? "%s0x%" PRIx64 : "%s%" PRIx64)
			                      : (spec->alternate ? "%s0X%" PRIX64 : "%s%" PRIX64),
			        number < 0          ? "-"
			        : spec->sign == '+' ? "+"
			        : spec->sign        ? " "
			                            : "",
			        size);
		}
		return value_text(r->s, out, strlen(out));
	}
	strcat(format, ".*");
	strcat(format, letter);
	snprintf(out, sizeof(out), format, precision, value_number(v) * (type == '%' ? 100 : 1));
	if (type == '%')
		strncat(out, "%", sizeof(out) - strlen(out) - 1);
	return value_text(r->s, out, strlen(out));
}

static void pad(struct render *r, struct sink *sink, struct text *t, const struct spec *spec, int is_number)
{
	int64_t room = spec->width - text_length(t), left;
	char align = spec->align ? spec->align : is_number ? '>' : '<';
	size_t sign = 0;

	room = room < 0 ? 0 : room;
	left = align == '>' ? room : align == '^' ? room / 2 : 0;
	if (spec->zero && is_number && !spec->align) {
		sign = t->len_bytes && strchr("+- ", t->data[0]) ? 1 : 0;
		sink_add(r->s, sink, t->data, sign);
	}
	for (int64_t i = 0; i < left; i++)
		sink_add(r->s, sink, spec->zero && is_number ? "0" : spec->fill,
		        spec->zero ? 1 : spec->fill_bytes);
	sink_add(r->s, sink, t->data + sign, t->len_bytes - sign);
	for (int64_t i = left; i < room; i++)
		sink_add(r->s, sink, spec->fill, spec->fill_bytes);
}

static void cut(struct text *t, const struct spec *spec)
{
	if (spec->precision >= 0 && spec->precision < text_length(t)) {
		t->len_bytes = text_offset(t, spec->precision);
		t->char_count = -1;
	}
}

static int read_number(struct render *r, const char **at)
{
	int number = 0;

	while (isdigit((unsigned char)**at)) {
		number = number * 10 + *(*at)++ - '0';
		if (number > WIDTH_MAX)
			sandbox_fail(r->s, "a format is wider than %d", WIDTH_MAX);
	}
	return number;
}

static struct value repr(struct render *r, struct value v)
{
	struct sink sink = {0};

	value_write_repr(r->s, &sink, v);
	return sink_value(r->s, &sink);
}

/* ---- percent ---- */

static struct value percent_argument(
        struct render *r, const char **at, const struct arguments *all, int64_t *used)
{
	const char *close;
	struct value v;

	if (**at != '(') {
		if (*used >= all->count)
			sandbox_fail(r->s, "the format needs more values than there are");
		return all->positional[(*used)++];
	}
	close = strchr(*at, ')');
	if (!close)
		sandbox_fail(r->s, "the format has no ')'");
	struct value key = value_text(r->s, *at + 1, (size_t)(close - *at - 1));

	*at = close + 1;
	*used = all->count;
	for (int64_t i = 0; i < all->named_count; i++)
		if (!strcmp(all->names[i]->data, key.u.text->data))
			return all->named[i];
	if (all->count == 1 && all->positional[0].kind == VALUE_DICT &&
	        dict_get(r->s, all->positional[0].u.dict, key, &v))
		return v;
	sandbox_fail(r->s, "the format needs '%.40s', which is not given", key.u.text->data);
}

struct value format_percent(struct render *r, const struct text *format, const struct arguments *all)
{
	const char *at = format->data, *end = at + format->len_bytes;
	struct sink sink = {0};
	int64_t used = 0;

	while (at < end) {
		const char *mark = memchr(at, '%', (size_t)(end - at));
		struct spec spec = {.fill = " ", .fill_bytes = 1, .precision = -1, .align = '>'};
		struct value v = NONE;
		struct text t;

		sink_add(r->s, &sink, at, (size_t)((mark ? mark : end) - at));
		if (!mark)
			break;
		at = mark + 1;
		if (*at == '%') {
			sink_add(r->s, &sink, at++, 1);
			continue;
		}
		if (*at == '(')
			v = percent_argument(r, &at, all, &used);
		for (; *at && strchr("-+ 0#", *at); at++) {
			spec.align = *at == '-' ? '<' : spec.align;
			spec.sign = *at == '+' || (*at == ' ' && !spec.sign) ? *at : spec.sign;
			spec.zero |= *at == '0';
			spec.alternate |= *at == '#';
		}
		spec.width = read_number(r, &at);
		if (*at == '.') {
			at++;
			spec.precision = read_number(r, &at);
		}
		spec.type = *at;
		if (at >= end || !strchr("sradiufFeEgGxXo", *at))
			sandbox_fail(r->s, "the format has '%%%c', which is unknown", at < end ? *at : ' ');
		at++;
		if (mark[1] != '(')
			v = percent_argument(r, &at, all, &used);
		int is_number = !strchr("sra", spec.type);

		if (is_number && !value_is_number(v))
			sandbox_fail(r->s, "the format needs a number, not %s", value_kind_name(v));
		t = is_number          ? *number_text(r, v, &spec).u.text
		    : spec.type == 's' ? *value_str(r->s, v)
		                       : *repr(r, v).u.text;
		if (!is_number)
			cut(&t, &spec);
		if (spec.align == '<')
			spec.zero = 0;
		else if (spec.zero && is_number)
			spec.align = 0;
		else
			spec.zero = 0;
		pad(r, &sink, &t, &spec, is_number);
	}
	if (used < all->count && !(all->count == 1 && all->positional[0].kind == VALUE_DICT))
		sandbox_fail(r->s, "the format needs fewer values than there are");
	return sink_value(r->s, &sink);
}

/* ---- braces ---- */

static struct value braces_field(
        struct render *r, const char **at, const char *end, const struct arguments *all, int64_t *next)
{
	const char *from = *at;
	struct value v = UNDEFINED, name;
	int found = 0;

	while (*at < end && !strchr(".[!:}", **at))
		++*at;
	name = value_text(r->s, from, (size_t)(*at - from));
	if (*at == from || strspn(from, "0123456789") >= (size_t)(*at - from)) {
		int64_t place = *at == from ? (*next)++ : atoll(name.u.text->data);

		if (place >= all->count)
			sandbox_fail(r->s, "format: there is no value %d", (int)place);
		v = all->positional[place];
		found = 1;
	}
	for (int64_t i = 0; !found && i < all->named_count; i++)
		if (!strcmp(all->names[i]->data, name.u.text->data)) {
			v = all->named[i];
			found = 1;
		}
	if (!found)
		sandbox_fail(r->s, "format: '%.40s' is not given", name.u.text->data);
	while (*at < end && (**at == '.' || **at == '[')) {
		char kind = *(*at)++;

		from = *at;
		while (*at < end && !strchr(kind == '.' ? ".[!:}" : "]", **at))
			++*at;
		name = value_text(r->s, from, (size_t)(*at - from));
		if (kind == '.')
			v = eval_attribute(r, v, name.u.text);
		else if (strspn(from, "0123456789") >= (size_t)(*at - from))
			v = eval_item(r, v, value_int(atoll(name.u.text->data)));
		else
			v = eval_item(r, v, name);
		*at += kind == '[' && *at < end;
	}
	return v;
}

static void read_spec(struct render *r, struct spec *spec, const char **at, const char *end)
{
	int32_t c;
	int len = *at < end ? char_at(*at, end, &c) : 0;

	if (len && *at + len < end && strchr("<>^", (*at)[len])) {
		spec->fill = *at;
		spec->fill_bytes = (size_t)len;
		*at += len;
	}
	if (*at < end && strchr("<>^", **at))
		spec->align = *(*at)++;
	if (*at < end && strchr("+- ", **at))
		spec->sign = **at == '-' ? 0 : **at, ++*at;
	if (*at < end && **at == '#')
		spec->alternate = 1, ++*at;
	if (*at < end && **at == '0')
		spec->zero = 1, ++*at;
	spec->width = read_number(r, at);
	if (*at < end && **at == '.') {
		++*at;
		spec->precision = read_number(r, at);
	}
	if (*at < end && **at != '}')
		spec->type = *(*at)++;
	if (spec->type && !strchr("sdfFeEgGxXo%", spec->type))
		sandbox_fail(r->s, "format: ':%c' is not supported", spec->type);
}

static void write_field(struct render *r, struct sink *sink, struct value v, struct spec *spec)
{
	int is_number = value_is_number(v) && v.kind != VALUE_BOOL;
	struct text t;

	if (spec->type && spec->type != 's' && !value_is_number(v))
		sandbox_fail(r->s, "format: ':%c' needs a number, not %s", spec->type, value_kind_name(v));
	if (!spec->type && v.kind == VALUE_FLOAT && spec->precision >= 0)
		spec->type = 'g';
	if (value_is_number(v) && spec->type && spec->type != 's')
		t = *number_text(r, v, spec).u.text;
	else
		t = *value_str(r->s, v);
	if (!is_number)
		cut(&t, spec);
	pad(r, sink, &t, spec, is_number);
}

struct value format_braces(struct render *r, const struct text *format, const struct arguments *all)
{
	const char *at = format->data, *end = at + format->len_bytes;
	struct sink sink = {0};
	int64_t next = 0;

	while (at < end) {
		struct spec spec = {.fill = " ", .fill_bytes = 1, .precision = -1};
		struct value v;

		if (*at != '{' && *at != '}') {
			sink_add(r->s, &sink, at++, 1);
			continue;
		}
		if (at + 1 < end && at[1] == *at) {
			sink_add(r->s, &sink, at, 1);
			at += 2;
			continue;
		}
		if (*at == '}')
			sandbox_fail(r->s, "format: a '}' closes nothing");
		at++;
		v = braces_field(r, &at, end, all, &next);
		if (at + 1 < end && *at == '!') {
			v = at[1] == 's' ? (struct value){.kind = VALUE_TEXT, .u.text = value_str(r->s, v)}
			                 : repr(r, v);
			at += 2;
		}
		if (at < end && *at == ':') {
			at++;
			if (at < end && *at != '}' && v.kind != VALUE_TEXT && !value_is_number(v))
				sandbox_fail(r->s, "format: a value of kind %s has no format specification",
				        value_kind_name(v));
			if (at < end && *at != '}' && v.kind == VALUE_BOOL)
				v = value_int(v.u.i);
			read_spec(r, &spec, &at, end);
		}
		if (at >= end || *at != '}')
			sandbox_fail(r->s, "format: a '{' has no end");
		at++;
		write_field(r, &sink, v, &spec);
	}
	return sink_value(r->s, &sink);
}
