/* Numbers of templates: integers of any size, comparisons, and numbers read from texts. */
#include "data/template/value.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t digits_to_int64(const char *digits, size_t len_bytes, int *wrong)
{
	int negative = len_bytes && digits[0] == '-';
	int64_t out = 0;

	for (size_t i = (size_t)negative; i < len_bytes && !*wrong; i++) {
		int digit = digits[i] - '0';

		*wrong |= __builtin_mul_overflow(out, 10, &out);
		*wrong |= __builtin_add_overflow(out, negative ? -digit : digit, &out);
	}
	return out;
}

struct value value_integer(struct sandbox *s, const char *digits, size_t len_bytes)
{
	int wrong = 0, negative = len_bytes && digits[0] == '-';
	int64_t small = digits_to_int64(digits, len_bytes, &wrong);
	struct sink sink = {0};
	struct value out;

	if (!wrong)
		return value_int(small);
	for (digits += negative, len_bytes -= (size_t)negative; *digits == '0'; digits++)
		len_bytes--;
	if (len_bytes > NUMBER_DIGITS_MAX)
		sandbox_fail(s, "an integer has more than %d digits", NUMBER_DIGITS_MAX);
	sink_text(s, &sink, negative ? "-" : "");
	sink_add(s, &sink, digits, len_bytes);
	out = sink_value(s, &sink);
	out.kind = VALUE_BIG;
	return out;
}

struct value number_negative(struct sandbox *s, struct value big)
{
	const struct text *t = big.u.text;
	struct sink sink = {0};

	if (t->data[0] == '-')
		return value_integer(s, t->data + 1, t->len_bytes - 1);
	sink_text(s, &sink, "-");
	sink_add(s, &sink, t->data, t->len_bytes);
	return value_integer(s, sink.data, sink.len_bytes); /* -2^63 has 64 bits */
}

int64_t number_index(struct value v)
{
	return v.kind != VALUE_BIG ? v.u.i : v.u.text->data[0] == '-' ? -INT64_MAX : INT64_MAX;
}

struct value value_whole(struct sandbox *s, double f)
{
	char digits[400]; /* the largest double has 309 */

	if (fabs(f) < 0x1p63)
		return value_int((int64_t)f);
	return value_integer(s, digits, (size_t)snprintf(digits, sizeof(digits), "%.0f", f));
}

double value_number(struct value v)
{
	return v.kind == VALUE_FLOAT ? v.u.f
	       : v.kind == VALUE_BIG ? strtod(v.u.text->data, NULL)
	                             : (double)v.u.i;
}

/* ---- comparisons ---- */

static int compare_digits(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int negative = a[0] == '-', order;

	if (negative != (b[0] == '-'))
		return negative ? -1 : 1;
	order = a_len != b_len ? (a_len > b_len) - (a_len < b_len) : memcmp(a, b, a_len);
	return negative ? -order : order;
}

/* An integer beside a finite double of 2^63 or more, or one that is large itself: by their digits. */
static int compare_large(struct value a, struct value b)
{
	char text[2][400];
	const char *digits[2];
	size_t len[2];

	for (int i = 0; i < 2; i++) {
		struct value v = i ? b : a;

		digits[i] = v.kind == VALUE_BIG ? v.u.text->data : text[i];
		len[i] = v.kind == VALUE_BIG
		                 ? v.u.text->len_bytes
		                 : (size_t)(v.kind == VALUE_FLOAT ? snprintf(text[i], sizeof(text[i]), "%.0f",
		                                                            trunc(v.u.f) + 0.0)
		                                                  : snprintf(text[i], sizeof(text[i]), "%lld",
		                                                            (long long)v.u.i));
	}
	return compare_digits(digits[0], len[0], digits[1], len[1]);
}

int number_compare(struct value a, struct value b)
{
	double x = value_number(a), y = value_number(b);

	if (value_is_integer(a) && value_is_integer(b))
		return (a.u.i > b.u.i) - (a.u.i < b.u.i);
	if ((a.kind == VALUE_FLOAT && b.kind == VALUE_FLOAT) || (a.kind == VALUE_FLOAT && !isfinite(x)) ||
	        (b.kind == VALUE_FLOAT && !isfinite(y)))
		return (x > y) - (x < y);
	if (a.kind == VALUE_BIG || b.kind == VALUE_BIG || fabs(x) >= 0x1p63 || fabs(y) >= 0x1p63)
		return compare_large(a, b);
	if (x != y) /* rounding an integer keeps the order */
		return x > y ? 1 : -1;
	/* equal as doubles below 2^63, so the double is an integer that fits */
	int64_t i = value_is_integer(a) ? a.u.i : (int64_t)x, k = value_is_integer(b) ? b.u.i : (int64_t)y;

	return (i > k) - (i < k);
}

/* ---- texts ---- */

static int digit_of(char c, int64_t base)
{
	int digit = isdigit((unsigned char)c)   ? c - '0'
	            : isalpha((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
	                                        : 99;

	return digit < base ? digit : -1;
}

/* Skips "0x", "0o" or "0b" if the base allows it; base 0 becomes the one that is meant. 1, or 0 if int()
 * refuses what follows. */
static int read_prefix(const char **at, int64_t *base)
{
	int64_t meant = (*at)[0] != '0' ? 10 : strchr("xX", (*at)[1]) ? 16 : strchr("oO", (*at)[1]) ? 8 : 2;

	if ((*at)[0] == '0' && (*at)[1] && strchr("xXoObB", (*at)[1]) && (!*base || *base == meant)) {
		*at += 2 + ((*at)[2] == '_');
		*base = meant;
		return 1;
	}
	if (*base)
		return 1;
	*base = 10;
	return (*at)[0] != '0' || strspn(*at, "0_") == strlen(*at);
}

int number_read_integer(struct sandbox *s, const struct text *t, int64_t base, struct value *out)
{
	const struct text *trimmed = text_strip(s, t, NULL, TEXT_BOTH).u.text;
	const char *at = trimmed->data;
	struct sink digits = {0};
	uint64_t size = 0;
	int negative = *at == '-', wrong = 0, digit, was_digit = 0;

	if ((base && (base < 2 || base > 36)) || strlen(at) != trimmed->len_bytes)
		return 0;
	at += *at == '-' || *at == '+';
	if (!read_prefix(&at, &base))
		return 0;
	sink_text(s, &digits, negative ? "-" : "");
	for (; *at; at++) {
		if (*at == '_' && was_digit) {
			was_digit = 0;
			continue;
		}
		digit = digit_of(*at, base);
		if (digit < 0)
			return 0;
		was_digit = 1;
		wrong |= __builtin_mul_overflow(size, (uint64_t)base, &size);
		wrong |= __builtin_add_overflow(size, (uint64_t)digit, &size);
		sink_add(s, &digits, at, 1);
	}
	if (!was_digit)
		return 0;
	if (base == 10 && digits.len_bytes > NUMBER_DIGITS_MAX + (size_t)negative)
		return 0;
	if (base == 10)
		*out = value_integer(s, digits.data, digits.len_bytes);
	else if (wrong || size > (uint64_t)INT64_MAX)
		sandbox_fail(s, "the integer '%.40s' needs more than 64 bits", trimmed->data);
	else
		*out = value_int(negative ? -(int64_t)size : (int64_t)size);
	return 1;
}

/* C reads hexadecimal digits and nan(...) too, Python does not; Python allows '_' between digits. */
int number_read_real(struct sandbox *s, const struct text *t, struct value *out)
{
	const struct text *trimmed = text_strip(s, t, NULL, TEXT_BOTH).u.text;
	const char *from = trimmed->data;
	struct sink copy = {0};
	char *end;

	if (!trimmed->len_bytes || strlen(from) != trimmed->len_bytes || strpbrk(from, "xX(") ||
	        isspace((unsigned char)*from))
		return 0;
	for (const char *at = from; *at; at++)
		if (*at != '_' || at == from || !isdigit((unsigned char)at[-1]) ||
		        !isdigit((unsigned char)at[1]))
			sink_add(s, &copy, at, 1);
	*out = value_float(strtod(copy.data, &end));
	return end != copy.data && !*end;
}
