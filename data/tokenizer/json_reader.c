/* A JSON reader that moves over a text. */
#include "data/tokenizer/json_reader.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "data/tokenizer/unicode.h"

int json_reader_error(const struct json_reader *r, const char *what)
{
	int64_t line = 1;

	for (const char *p = r->begin; p < r->at; p++)
		line += *p == '\n';
	return err_set(ERR_INPUT, "%s:%lld: %s", r->where, (long long)line, what);
}

void json_reader_free(struct json_reader *r)
{
	str_free(&r->text);
}

char json_reader_peek(struct json_reader *r)
{
	while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
		r->at++;
	return r->at < r->end ? *r->at : 0;
}

int json_reader_expect(struct json_reader *r, char c)
{
	char what[16] = "'?' is missing";

	if (json_reader_peek(r) == c) {
		r->at++;
		return 0;
	}
	what[1] = c;
	return json_reader_error(r, what);
}

int json_reader_more(struct json_reader *r, char close, int64_t *count)
{
	int rc = 0;

	if (json_reader_peek(r) == close) {
		r->at++;
		return 0;
	}
	if ((*count)++ > 0)
		rc = json_reader_expect(r, ',');
	return rc < 0 ? rc : 1;
}

static int hex4(struct json_reader *r, uint32_t *value)
{
	*value = 0;
	for (int i = 0; i < 4; i++, r->at++) {
		char c = r->at < r->end ? *r->at : 0;
		int digit = c >= '0' && c <= '9'   ? c - '0'
		            : c >= 'a' && c <= 'f' ? c - 'a' + 10
		            : c >= 'A' && c <= 'F' ? c - 'A' + 10
		                                   : -1;

		if (digit < 0)
			return json_reader_error(r, "\\u without four hexadecimal digits");
		*value = *value * 16 + (uint32_t)digit;
	}
	return 0;
}

/* Reads an escape, after its backslash, into r->text. */
static int read_escape(struct json_reader *r)
{
	static const char plain[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
	char c = r->at < r->end ? *r->at++ : 0, bytes[4];
	uint32_t value, low;
	int rc;

	for (size_t i = 0; i + 1 < sizeof(plain); i += 2)
		if (c == plain[i]) {
			str_add_char(&r->text, plain[i + 1]);
			return 0;
		}
	if (c != 'u')
		return json_reader_error(r, "an escape that JSON does not have");
	rc = hex4(r, &value);
	if (rc == 0 && value >= 0xd800 && value < 0xdc00 && r->end - r->at >= 2 && r->at[0] == '\\' &&
	        r->at[1] == 'u') {
		r->at += 2;
		rc = hex4(r, &low);
		if (rc == 0 && (low < 0xdc00 || low >= 0xe000))
			rc = json_reader_error(r, "half of a surrogate pair");
		value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
	}
	if (rc == 0 && value >= 0xd800 && value < 0xe000)
		rc = json_reader_error(r, "half of a surrogate pair");
	if (rc == 0)
		str_add_bytes(&r->text, bytes, (size_t)utf8_put(bytes, value));
	return rc;
}

/* Moves to the next quote, backslash or control character. */
static void skip_plain(struct json_reader *r)
{
	while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (unsigned char)*r->at >= 0x20)
		r->at++;
}

int json_reader_string(struct json_reader *r, const char **text, size_t *len_bytes)
{
	const char *start;
	int rc = json_reader_expect(r, '"');

	if (rc < 0)
		return rc;
	start = r->at;
	skip_plain(r);
	if (r->at < r->end && *r->at == '"') { /* no escapes: the text itself */
		*text = start;
		*len_bytes = (size_t)(r->at++ - start);
		return 0;
	}
	r->text.len_bytes = 0;
	for (;;) {
		str_add_bytes(&r->text, start, (size_t)(r->at - start));
		if (r->at == r->end || (unsigned char)*r->at < 0x20)
			return json_reader_error(r, "a string without its closing quote");
		if (*r->at++ == '"')
			break;
		rc = read_escape(r);
		if (rc < 0)
			return rc;
		start = r->at;
		skip_plain(r);
	}
	if (str_check(&r->text) < 0)
		return ERR_NOMEM;
	*text = r->text.data;
	*len_bytes = r->text.len_bytes;
	return 0;
}

int json_reader_int(struct json_reader *r, int64_t *value)
{
	int negative = json_reader_peek(r) == '-', digits = 0;

	*value = 0;
	r->at += negative;
	for (; r->at < r->end && *r->at >= '0' && *r->at <= '9' && digits < 18; r->at++, digits++)
		*value = *value * 10 + (*r->at - '0');
	if (digits == 0 || (r->at < r->end && ((*r->at >= '0' && *r->at <= '9') || strchr(".eE", *r->at))))
		return json_reader_error(r, "expected an id, a whole number");
	*value = negative ? -*value : *value;
	return 0;
}

static int is_digit(const struct json_reader *r)
{
	return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

/* Reads digits into *significand as long as they fit. *dropped counts the other digits. */
static int read_digits(struct json_reader *r, uint64_t *significand, int *dropped, int *taken)
{
	int count = 0;

	*dropped = *taken = 0;
	for (; is_digit(r); r->at++, count++) {
		uint64_t digit = (uint64_t)(*r->at - '0'), next;

		if (*dropped == 0 && !__builtin_mul_overflow(*significand, (uint64_t)10, &next) &&
		        !__builtin_add_overflow(next, digit, &next)) {
			*significand = next;
			++*taken;
		} else {
			++*dropped;
		}
	}
	return count > 0 ? 0 : json_reader_error(r, "a number without digits");
}

static double scale(double value, int64_t exponent)
{
	static const double powers[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12,
	        1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27,
	        1e28, 1e29, 1e30, 1e31, 1e32};
	enum { EXACT = sizeof(powers) / sizeof(powers[0]) };

	if (exponent >= 0)
		return exponent < EXACT ? value * powers[exponent] : value * pow(10, (double)exponent);
	if (-exponent < EXACT)
		return value / powers[-exponent];
	for (; exponent < -308 && value != 0; exponent += 308)
		value /= 1e308;
	return value / pow(10, (double)-exponent);
}

int json_reader_number(struct json_reader *r, double *value)
{
	int negative = json_reader_peek(r) == '-', dropped, taken, rc;
	uint64_t significand = 0;
	int64_t exponent = 0, written = 0;

	r->at += negative;
	rc = read_digits(r, &significand, &dropped, &taken);
	exponent = dropped;
	if (rc == 0 && r->at < r->end && *r->at == '.') {
		int full = dropped > 0;

		r->at++;
		if (full) { /* ignore further digits */
			uint64_t unused = 0;

			rc = read_digits(r, &unused, &dropped, &taken);
		} else {
			rc = read_digits(r, &significand, &dropped, &taken);
			exponent -= taken;
		}
	}
	if (rc == 0 && r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
		int minus;

		r->at++;
		minus = r->at < r->end && *r->at == '-';
		r->at += r->at < r->end && (*r->at == '-' || *r->at == '+');
		if (!is_digit(r))
			return json_reader_error(r, "a number without digits in its exponent");
		for (; is_digit(r); r->at++)
			written = written < 100000 ? written * 10 + (*r->at - '0') : written;
		exponent += minus ? -written : written;
	}
	*value = scale((double)significand, exponent);
	if (rc == 0 && !isfinite(*value))
		rc = json_reader_error(r, "a number out of range");
	*value = negative ? -*value : *value;
	return rc;
}

static int skip_word(struct json_reader *r)
{
	static const char *const words[] = {"null", "true", "false"};

	for (int i = 0; i < 3; i++) {
		size_t len = strlen(words[i]);

		if ((size_t)(r->end - r->at) >= len && memcmp(r->at, words[i], len) == 0) {
			r->at += len;
			return 0;
		}
	}
	return json_reader_error(r, "an invalid JSON value");
}

static int skip_string(struct json_reader *r)
{
	for (r->at++; r->at < r->end && *r->at != '"'; r->at++)
		r->at += *r->at == '\\';
	if (r->at >= r->end)
		return json_reader_error(r, "a string without its closing quote");
	r->at++;
	return 0;
}

/* Skips brackets by counting them. A later reader of this part checks its inside. */
static int skip_brackets(struct json_reader *r)
{
	int64_t depth = 0;

	do {
		char c = *r->at;

		if (c == '"') {
			int rc = skip_string(r);

			if (rc < 0)
				return rc;
			continue;
		}
		depth += c == '{' || c == '[';
		depth -= c == '}' || c == ']';
		r->at++;
	} while (depth > 0 && r->at < r->end);
	return depth > 0 ? json_reader_error(r, "a bracket without its other half") : 0;
}

int json_reader_skip(struct json_reader *r)
{
	char c = json_reader_peek(r);
	double unused;

	if (c == '{' || c == '[')
		return skip_brackets(r);
	if (c == '"')
		return skip_string(r);
	return c == '-' || (c >= '0' && c <= '9') ? json_reader_number(r, &unused) : skip_word(r);
}
