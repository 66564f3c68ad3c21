/* The two ways to format: "%s" % x, and "{}".format(x). */
#include "data/template/render.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH_MAX = 10000, REAL_BYTES = 400 /* before the precision's digits: 1e308 has 309 */ };

enum style { STYLE_PERCENT, STYLE_BRACES };

struct spec {
	enum style style;
	const char *fill;
	size_t fill_bytes;
	char align; /* '<', '>', '^', '=' (between sign and digits), or 0 */
	char sign;  /* '+', ' ', or 0 */
	int zero, alternate;
	int width, precision; /* precision -1 = none */
	char type;            /* 0 = none */
};

/* A number as text: its sign and base before, then its digits. */
struct figures {
	char before[4];
	struct sink digits;
};

static _Noreturn void no_format(struct render *r, const struct spec *spec, struct value v)
{
	struct sink text = {0};

	value_write(r->s, &text, v);
	sandbox_fail(r->s, "the format '%c' does not fit the number %.40s", spec->type ? spec->type : ' ',
	        text.data);
}

/* The size of an integer in the format's base; sets the prefix. */
static void integer_figures(struct render *r, struct figures *f, struct value v, const struct spec *spec)
{
	int is_decimal = strchr("diu", spec->type) != NULL;
	const char *digits;
	char small[32];

	if (v.kind == VALUE_FLOAT && (spec->style == STYLE_BRACES || !is_decimal || !isfinite(v.u.f)))
		no_format(r, spec, v);
	if (v.kind == VALUE_FLOAT)
		v = value_whole(r->s, v.u.f);
	if ((v.kind == VALUE_BIG && !is_decimal) || (spec->style == STYLE_BRACES && spec->precision >= 0))
		no_format(r, spec, v);
	uint64_t size = v.u.i < 0 ? 0 - (uint64_t)v.u.i : (uint64_t)v.u.i;
	int negative = v.kind == VALUE_BIG ? v.u.text->data[0] == '-' : v.u.i < 0;

	f->before[0] = negative ? '-' : 0;
	snprintf(small, sizeof(small),
	        is_decimal          ? "%" PRIu64
	        : spec->type == 'o' ? "%" PRIo64
	        : spec->type == 'x' ? "%" PRIx64
	                            : "%" PRIX64,
	        size);
	digits = v.kind == VALUE_BIG ? v.u.text->data + negative : small;
	for (int64_t i = (int64_t)strlen(digits); i < spec->precision; i++)
		sink_text(r->s, &f->digits, "0");
	sink_text(r->s, &f->digits, digits);
}

/* Python's format of a real number with a precision and no type: as 'g', with a digit behind the point. */
static void general_figures(struct render *r, struct sink *out, double size, int precision)
{
	int digits = precision ? precision : 1, exponent;
	size_t room = (size_t)precision + REAL_BYTES;
	char *text = sandbox_alloc(r->s, room, 1), *end, *mark;

	snprintf(text, room, "%.*e", digits - 1, size);
	mark = strchr(text, 'e');
	exponent = mark ? atoi(mark + 1) : 0;
	if (exponent >= -4 && exponent < digits - 1) {
		snprintf(text, room, "%.*f", digits - 1 - exponent, size);
		mark = text + strlen(text);
	}
	end = mark;
	if (memchr(text, '.', (size_t)(mark - text))) {
		while (end[-1] == '0')
			end--;
		end -= end[-1] == '.';
	}
	sink_add(r->s, out, text, (size_t)(end - text));
	if (!*mark && !memchr(text, '.', (size_t)(end - text)))
		sink_text(r->s, out, ".0");
	sink_text(r->s, out, mark);
}

static void real_figures(struct render *r, struct figures *f, struct value v, const struct spec *spec)
{
	double number = value_number(v), size = fabs(number);
	int precision = spec->precision < 0 ? 6 : spec->precision;
	char format[8] = "%", letter[2] = {spec->type == '%' ? 'f' : spec->type}, repr[FLOAT_BYTES];
	size_t room = (size_t)precision + REAL_BYTES;
	char *text = sandbox_alloc(r->s, room, 1);

	if (v.kind == VALUE_BIG && isinf(number))
		no_format(r, spec, v);
	f->before[0] = signbit(number) && !isnan(number) ? '-' : 0;
	if (!spec->type && (spec->precision < 0 || !isfinite(number))) {
		float_write(repr, size);
		sink_text(r->s, &f->digits, repr);
		return;
	}
	if (!spec->type) {
		general_figures(r, &f->digits, size, precision);
		return;
	}
	strcat(format, spec->alternate ? "#.*" : ".*");
	strcat(format, letter);
	snprintf(text, room, format, precision, size * (spec->type == '%' ? 100 : 1));
	sink_text(r->s, &f->digits, text);
	sink_text(r->s, &f->digits, spec->type == '%' ? "%" : "");
}

static void number_figures(struct render *r, struct figures *f, struct value v, const struct spec *spec)
{
	struct spec decimal = *spec;
	size_t len;

	if (!decimal.type && v.kind != VALUE_FLOAT)
		decimal.type = 'd';
	if (decimal.type && strchr("diuoxX", decimal.type))
		integer_figures(r, f, v, &decimal);
	else
		real_figures(r, f, v, spec);
	if (!f->before[0])
		f->before[0] = spec->sign;
	len = strlen(f->before);
	if (spec->alternate && spec->type && strchr("oxX", spec->type)) {
		f->before[len] = '0';
		f->before[len + 1] = spec->type;
	}
}

static void fill(struct render *r, struct sink *sink, const struct spec *spec, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		sink_add(r->s, sink, spec->fill, spec->fill_bytes);
}

/* Writes `before` and the text, filled to the width. */
static void pad(
        struct render *r, struct sink *sink, const char *before, struct text *t, const struct spec *spec)
{
	int64_t room = spec->width - text_length(t) - (int64_t)strlen(before);
	int64_t left = spec->align == '>' ? room : spec->align == '^' ? room / 2 : 0;

	fill(r, sink, spec, left);
	sink_text(r->s, sink, before);
	fill(r, sink, spec, spec->align == '=' ? room : 0);
	sink_add(r->s, sink, t->data, t->len_bytes);
	fill(r, sink, spec, spec->align == '=' ? 0 : room - left);
}

static void write_number(struct render *r, struct sink *sink, struct value v, const struct spec *spec)
{
	struct figures f = {0};
	struct text t;

	number_figures(r, &f, v, spec);
	t = *sink_value(r->s, &f.digits).u.text;
	pad(r, sink, f.before, &t, spec);
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
		struct spec spec = {
		        .style = STYLE_PERCENT, .fill = " ", .fill_bytes = 1, .precision = -1, .align = '>'};
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
		if (at >= end || !*at || !strchr("sradiufFeEgGxXo", *at))
			sandbox_fail(r->s, "the format has '%%%c', which is unknown", at < end ? *at : ' ');
		at++;
		if (mark[1] != '(')
			v = percent_argument(r, &at, all, &used);
		if (strchr("sra", spec.type)) {
			t = spec.type == 's' ? *value_str(r->s, v) : *repr(r, v).u.text;
			cut(&t, &spec);
			pad(r, &sink, "", &t, &spec);
			continue;
		}
		if (!value_is_number(v))
			sandbox_fail(r->s, "the format needs a number, not %s", value_kind_name(v));
		if (spec.zero && spec.align != '<') {
			spec.align = '=';
			spec.fill = "0";
		}
		write_number(r, &sink, v, &spec);
	}
	if (used < all->count && !(all->count == 1 && all->positional[0].kind == VALUE_DICT))
		sandbox_fail(r->s, "the format needs fewer values than there are");
	return sink_value(r->s, &sink);
}

/* ---- braces ---- */

static int64_t place_of(struct render *r, const struct text *digits)
{
	int64_t place;

	errno = 0;
	place = strtoll(digits->data, NULL, 10);
	if (errno)
		sandbox_fail(r->s, "format: the place %.40s has too many digits", digits->data);
	return place;
}

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
		int64_t place = *at == from ? (*next)++ : place_of(r, name.u.text);

		if (place >= all->count)
			sandbox_fail(r->s, "format: it needs more values than %d", (int)all->count);
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
			v = eval_item(r, v, value_int(place_of(r, name.u.text)));
		else
			v = eval_item(r, v, name);
		*at += kind == '[' && *at < end;
	}
	return v;
}

static void read_spec(struct render *r, struct spec *spec, const char **at, const char *end)
{
	int32_t c;
	int len = *at < end ? char_at(*at, end, &c) : 0, has_fill = 0;

	if (len && *at + len < end && (*at)[len] && strchr("<>^=", (*at)[len])) {
		spec->fill = *at;
		spec->fill_bytes = (size_t)len;
		has_fill = 1;
		*at += len;
	}
	if (*at < end && **at && strchr("<>^=", **at))
		spec->align = *(*at)++;
	if (*at < end && **at && strchr("+- ", **at))
		spec->sign = *(*at)++;
	if (*at < end && **at == '#')
		spec->alternate = 1, ++*at;
	if (*at < end && **at == '0' && !has_fill) {
		spec->zero = 1;
		spec->fill = "0";
		++*at;
	}
	spec->width = read_number(r, at);
	if (*at < end && **at == '.') {
		++*at;
		if (*at < end && !isdigit((unsigned char)**at))
			sandbox_fail(r->s, "format: a precision is missing");
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

	if (is_number ? spec->type == 's' : spec->type && spec->type != 's')
		sandbox_fail(r->s, "format: ':%c' does not fit %s", spec->type, value_kind_name(v));
	if (!spec->align)
		spec->align = !is_number ? '<' : spec->zero ? '=' : '>';
	if (is_number) {
		spec->sign = spec->sign == '-' ? 0 : spec->sign;
		write_number(r, sink, v, spec);
		return;
	}
	if (spec->sign || spec->alternate || spec->align == '=')
		sandbox_fail(r->s, "format: a text has no sign and no base");
	t = *value_str(r->s, v);
	cut(&t, spec);
	pad(r, sink, "", &t, spec);
}

struct value format_braces(struct render *r, const struct text *format, const struct arguments *all)
{
	const char *at = format->data, *end = at + format->len_bytes;
	struct sink sink = {0};
	int64_t next = 0;

	while (at < end) {
		struct spec spec = {.style = STYLE_BRACES, .fill = " ", .fill_bytes = 1, .precision = -1};
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
