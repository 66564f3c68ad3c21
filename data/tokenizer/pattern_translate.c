/* Rewrites a pattern, element by element. */
#include "data/tokenizer/pattern_translate.h"

#include <ctype.h>
#include <string.h>

#include "base/err.h"
#include "data/tokenizer/unicode.h"

enum { DEPTH_MAX = 64 };

struct translation {
	struct str *out;
	const char *pattern, *at;
	int depth;
	uint64_t caseless; /* bit d: the group at depth d is inside (?i: */
	char last_letter;  /* the literal before, in lower case; only inside (?i: */
	int can_repeat;    /* a quantifier may follow */
};

/* One element of a class, or an escape outside: a single character or a set of classes. */
struct atom {
	int is_set;
	unsigned classes;
	int negated;
	uint32_t c;
};

static int refuse(const struct translation *t, const char *what)
{
	return err_set(ERR_UNSUPPORTED, "the pattern '%.300s' has %s at byte %d, which is not supported",
	        t->pattern, what, (int)(t->at - t->pattern));
}

static int is_caseless(const struct translation *t)
{
	return t->caseless >> t->depth & 1;
}

/* Writes, for the inside of [..], the ranges of characters with (negated: without) one of the classes. */
static void put_ranges(struct str *out, unsigned classes, int negated)
{
	uint32_t first = 0;
	int inside = 0;

	for (int i = 0; i <= unicode_run_count; i++) {
		uint32_t at = i < unicode_run_count ? unicode_runs[i].first : UNICODE_END;
		int member = i < unicode_run_count && ((unicode_runs[i].flags & classes) != 0) != negated;

		if (member && !inside)
			first = at;
		if (!member && inside) {
			/* surrogates are not characters: PCRE2 refuses them as ends of a range */
			if (first < 0xd800 && at > 0xe000)
				str_printf(out, "\\x{%x}-\\x{d7ff}\\x{e000}-\\x{%x}", first, at - 1);
			else
				str_printf(out, "\\x{%x}-\\x{%x}", first, at - 1);
		}
		inside = member;
	}
}

static int read_property(struct translation *t, struct atom *a)
{
	static const struct {
		const char *name;
		unsigned classes;
	} names[] = {{"L", UNICODE_L}, {"N", UNICODE_N}, {"M", UNICODE_M}, {"Lu", UNICODE_LU},
	        {"Ll", UNICODE_LL}, {"Lt", UNICODE_LT}, {"Lm", UNICODE_LM}, {"Lo", UNICODE_LO},
	        {"P", UNICODE_P}, {"S", UNICODE_S}, {"Nd", UNICODE_ND}, {"Han", UNICODE_HAN}};
	const char *name = t->at + 1, *end = strchr(t->at, '}');
	int negated = t->at[-1] == 'P';

	if (t->at[0] != '{' || !end)
		return refuse(t, "a property without {}");
	if (*name == '^') {
		negated = !negated;
		name++;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i].name) == (size_t)(end - name) &&
		        memcmp(names[i].name, name, (size_t)(end - name)) == 0) {
			*a = (struct atom){.is_set = 1, .classes = names[i].classes, .negated = negated};
			t->at = end + 1;
			return 0;
		}
	return refuse(t, "a property other than L, Lu, Ll, Lt, Lm, Lo, M, N, Nd, P, S or Han");
}

/* Reads hexadecimal digits, min_count to max_count of them. */
static int read_hex(struct translation *t, uint32_t *c, int min_count, int max_count)
{
	int count = 0;

	for (*c = 0; count < max_count && isxdigit((unsigned char)*t->at); count++, t->at++)
		*c = *c * 16 + (uint32_t)(isdigit((unsigned char)*t->at)
		                                  ? *t->at - '0'
		                                  : tolower((unsigned char)*t->at) - 'a' + 10);
	if (count < min_count || *c >= UNICODE_END || (*c >= 0xd800 && *c < 0xe000))
		return refuse(t, "an invalid character number");
	return 0;
}

/* Reads an escape; t->at is after the backslash. */
static int read_escape(struct translation *t, struct atom *a)
{
	static const char controls[] = "r\rn\nt\tf\fv\va\ae\x1b";
	char c = *t->at;
	int rc = 0;

	*a = (struct atom){0};
	if (c == 0)
		return refuse(t, "a backslash at its end");
	t->at++;
	for (size_t i = 0; i + 1 < sizeof(controls); i += 2)
		if (controls[i] == c) {
			a->c = (unsigned char)controls[i + 1];
			return 0;
		}
	switch (c) {
	case 'p':
	case 'P':
		return read_property(t, a);
	case 's':
	case 'S':
		*a = (struct atom){.is_set = 1, .classes = UNICODE_SPACE, .negated = c == 'S'};
		return 0;
	case 'w':
	case 'W':
		*a = (struct atom){.is_set = 1, .classes = UNICODE_WORD, .negated = c == 'W'};
		return 0;
	case 'd':
	case 'D':
		*a = (struct atom){.is_set = 1, .classes = UNICODE_ND, .negated = c == 'D'};
		return 0;
	case 'u':
		return read_hex(t, &a->c, 4, 4);
	case 'x':
		if (*t->at != '{') {
			rc = read_hex(t, &a->c, 2, 2);
			return rc == 0 && a->c >= 0x80 ? refuse(t, "a byte that is not a character") : rc;
		}
		t->at++;
		rc = read_hex(t, &a->c, 1, 6);
		if (rc == 0 && *t->at++ != '}')
			return refuse(t, "\\x{ without }");
		return rc;
	default:
		break;
	}
	if ((unsigned char)c >= 0x80 || isalnum((unsigned char)c)) {
		t->at--;
		return refuse(t, "an escape");
	}
	a->c = (unsigned char)c;
	return 0;
}

/* The next element inside a class. */
static int read_class_atom(struct translation *t, struct atom *a)
{
	if (*t->at == '[' || (t->at[0] == '&' && t->at[1] == '&'))
		return refuse(t, "a class inside a class");
	if (*t->at == '\\') {
		t->at++;
		return read_escape(t, a);
	}
	*a = (struct atom){0};
	t->at += utf8_get(t->at, &a->c);
	return 0;
}

/* Both dialects fold the case of single ASCII characters alike; anything else is refused. */
static int check_caseless(const struct translation *t, const struct atom *a)
{
	return is_caseless(t) && (a->is_set || a->c >= 0x80)
	               ? refuse(t, "a class or a character beyond ASCII inside (?i:)")
	               : 0;
}

/* Translates [..]; t->at is after the bracket. */
static int translate_class(struct translation *t)
{
	struct atom a, last;
	int rc;

	str_add_char(t->out, '[');
	if (*t->at == '^') {
		if (is_caseless(t))
			return refuse(t, "a negated class inside (?i:)");
		str_add_char(t->out, '^');
		t->at++;
	}
	if (*t->at == ']')
		return refuse(t, "']' as the first element of a class");
	while (*t->at != ']') {
		if (*t->at == 0)
			return err_set(ERR_INPUT, "the pattern '%.300s' has a '[' without ']'", t->pattern);
		rc = read_class_atom(t, &a);
		if (rc == 0)
			rc = check_caseless(t, &a);
		if (rc < 0)
			return rc;
		last = a;
		if (t->at[0] == '-' && t->at[1] != ']') {
			t->at++;
			if (*t->at == 0)
				continue;
			rc = read_class_atom(t, &last);
			if (rc == 0)
				rc = check_caseless(t, &last);
			if (rc < 0)
				return rc;
			if (a.is_set || last.is_set || last.c < a.c)
				return refuse(t, "a range with ends that are not characters in order");
		}
		if (a.is_set)
			put_ranges(t->out, a.classes, a.negated);
		else
			str_printf(t->out, "\\x{%x}-\\x{%x}", a.c, last.c);
	}
	t->at++;
	str_add_char(t->out, ']');
	return 0;
}

/* Writes a literal. Inside (?i:), Oniguruma matches a ligature for ss, st, ff, fi or fl: these are
 * refused. */
static int put_literal(struct translation *t, uint32_t c)
{
	static const char pairs[][2] = {{'s', 's'}, {'s', 't'}, {'f', 'f'}, {'f', 'i'}, {'f', 'l'}};

	if (is_caseless(t)) {
		char letter = c < 0x80 ? (char)tolower((int)c) : 0;

		for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
			if (t->last_letter == pairs[i][0] && letter == pairs[i][1])
				return refuse(t, "letters with a ligature inside (?i:)");
		t->last_letter = letter;
	}
	str_printf(t->out, "\\x{%x}", c);
	return 0;
}

/* Translates the start of a group; t->at is after the parenthesis. */
static int translate_open(struct translation *t)
{
	static const char *const kinds[] = {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:"};
	const char *kind = *t->at == '?' ? NULL : ""; /* a plain group: no construct uses its capture */

	for (size_t i = 0; !kind && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strncmp(t->at, kinds[i], strlen(kinds[i])) == 0)
			kind = kinds[i];
	if (!kind)
		return refuse(t, "an unknown kind of group");
	if (++t->depth == DEPTH_MAX)
		return refuse(t, "groups nested too deep");
	t->caseless &= ~((uint64_t)1 << t->depth);
	if (strcmp(kind, "?i:") == 0 || t->caseless >> (t->depth - 1) & 1)
		t->caseless |= (uint64_t)1 << t->depth;
	str_printf(t->out, "(%s", *kind ? kind : "?:");
	t->at += strlen(kind);
	return 0;
}

/* Length in bytes of {n}, {n,}, {n,m} or {,m} at t->at; 0 for a plain brace. */
static size_t repeat_length(const char *at, int *has_comma)
{
	size_t i = 1, digits = strspn(at + 1, "0123456789");

	*has_comma = 0;
	i += digits;
	if (at[i] == ',') {
		size_t more = strspn(at + i + 1, "0123456789");

		*has_comma = 1;
		i += 1 + more;
		digits += more;
	}
	return digits > 0 && digits < 10 && at[i] == '}' ? i + 1 : 0;
}

/* Translates a quantifier and the sign that makes it lazy or possessive. */
static int translate_repeat(struct translation *t, size_t len_bytes, int has_comma)
{
	int braces = *t->at == '{';

	if (!t->can_repeat)
		return refuse(t, "a quantifier with nothing before it, or a second one");
	if (braces && t->at[1] == ',')
		str_add(t->out, "{0");
	else
		str_add_char(t->out, *t->at);
	str_add_bytes(t->out, t->at + 1, len_bytes - 1);
	t->at += len_bytes;
	t->can_repeat = 0;
	if (*t->at == '+' && braces)
		return refuse(t, "a '+' after {}");
	if (*t->at == '?' && braces && !has_comma)
		return refuse(t, "a '?' after {n}");
	if (*t->at == '?' || *t->at == '+')
		str_add_char(t->out, *t->at++);
	return 0;
}

/* Translates one element outside of classes. */
static int translate_element(struct translation *t)
{
	struct atom a;
	char c = *t->at;
	int has_comma = 0, rc;
	size_t braces = c == '{' ? repeat_length(t->at, &has_comma) : 0;

	if (c == '*' || c == '+' || c == '?' || braces > 0) {
		t->last_letter = 0;
		return translate_repeat(t, braces ? braces : 1, has_comma);
	}
	t->can_repeat = 1;
	if (strchr("()|^$.[", c)) {
		t->last_letter = 0;
		t->at++;
		t->can_repeat = !strchr("(|^$", c);
		switch (c) {
		case '(':
			return translate_open(t);
		case ')':
			if (--t->depth < 0)
				return err_set(
				        ERR_INPUT, "the pattern '%.300s' has a ')' without '('", t->pattern);
			break;
		case '[':
			return translate_class(t);
		default:
			break;
		}
		if (c == '.')
			str_add(t->out, "[^\\n]");
		else
			str_add_char(t->out, c);
		return 0;
	}
	if (c != '\\') {
		a = (struct atom){0};
		t->at += utf8_get(t->at, &a.c);
	} else {
		t->at++;
		rc = read_escape(t, &a);
		if (rc < 0)
			return rc;
	}
	rc = check_caseless(t, &a);
	if (rc < 0)
		return rc;
	if (!a.is_set)
		return put_literal(t, a.c);
	str_add_char(t->out, '[');
	put_ranges(t->out, a.classes, a.negated);
	str_add_char(t->out, ']');
	return 0;
}

int pattern_translate(struct str *out, const char *pattern)
{
	struct translation t = {.out = out, .pattern = pattern, .at = pattern};

	if (utf8_check(pattern, strlen(pattern)) != strlen(pattern))
		return err_set(ERR_INPUT, "a pattern is not valid UTF-8");
	while (*t.at) {
		int rc = translate_element(&t);

		if (rc < 0)
			return rc;
	}
	if (t.depth > 0)
		return err_set(ERR_INPUT, "the pattern '%.300s' has a '(' without ')'", pattern);
	return str_check(out);
}
