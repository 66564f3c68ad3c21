/* Splits the source of a template into tokens. */
#include "data/template/lexer.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

struct lexer {
	struct sandbox *s;
	const char *at, *end;
	int line;
	int line_starts; /* nothing but blanks may have come before on this line */
	struct token *tokens;
	int64_t count, cap;
};

static void add(struct lexer *l, enum token_kind kind, struct value value)
{
	if (l->count == l->cap) {
		int64_t cap = l->cap * 2 + 64;
		struct token *tokens = sandbox_alloc(l->s, (size_t)cap, sizeof(*tokens));

		if (l->count)
			memcpy(tokens, l->tokens, (size_t)l->count * sizeof(*tokens));
		l->tokens = tokens;
		l->cap = cap;
	}
	l->tokens[l->count++] = (struct token){kind, l->line, value};
}

static void go_to(struct lexer *l, const char *to)
{
	for (; l->at < to; l->at++)
		l->line += *l->at == '\n';
	l->s->line = l->line;
}

static int starts_with(const struct lexer *l, const char *at, const char *text)
{
	size_t len = strlen(text);

	return (size_t)(l->end - at) >= len && !memcmp(at, text, len);
}

static const char *skip_space(const struct lexer *l, const char *at)
{
	int32_t c;

	while (at < l->end) {
		int len = char_at(at, l->end, &c);

		if (!char_is_space(c))
			break;
		at += len;
	}
	return at;
}

static const char *trim_back(const char *from, const char *to)
{
	struct text t = {.data = from, .len_bytes = (size_t)(to - from)};
	int32_t c;

	while (t.len_bytes) {
		size_t at = t.len_bytes - 1;

		while (at && ((unsigned char)from[at] & 0xc0) == 0x80)
			at--;
		char_at(from + at, from + t.len_bytes, &c);
		if (!char_is_space(c))
			break;
		t.len_bytes = at;
	}
	return from + t.len_bytes;
}

/* The end of the text [from, to) before a tag with this sign: some signs remove white space. */
static const char *text_end(const struct lexer *l, const char *from, const char *to, char sign, int is_output)
{
	const char *line = to;

	if (sign == '-')
		return trim_back(from, to);
	if (sign == '+' || is_output)
		return to;
	while (line > from && line[-1] != '\n')
		line--;
	if ((line > from || l->line_starts) && trim_back(line, to) == line)
		return line;
	return to;
}

static void add_text(struct lexer *l, const char *from, const char *to)
{
	if (to > from)
		add(l, TOKEN_TEXT, value_text_of(l->s, from, (size_t)(to - from)));
}

/* Skips white space after a tag: all of it for '-', one newline for no sign. */
static void after_tag(struct lexer *l, const char *at, char sign, int takes_newline)
{
	const char *to = at;

	if (sign == '-')
		to = skip_space(l, at);
	else if (sign != '+' && takes_newline && at < l->end && *at == '\n')
		to = at + 1;
	l->line_starts = to > at && to[-1] == '\n';
	go_to(l, to);
}

/* Skips a comment; l->at is after {# and its sign. */
static void comment(struct lexer *l)
{
	const char *close = memmem(l->at, (size_t)(l->end - l->at), "#}", 2);
	char sign;

	if (!close)
		sandbox_fail(l->s, "the comment is not closed");
	sign = close > l->at ? close[-1] : 0;
	go_to(l, close);
	after_tag(l, close + 2, sign, 1);
}

/* Matches the tag `{%- name -%}` at `at`. Returns its end, or NULL; *open and *close are its signs. */
static const char *plain_tag(const struct lexer *l, const char *at, const char *name, char *open, char *close)
{
	if (!starts_with(l, at, "{%"))
		return NULL;
	at += 2;
	*open = at < l->end && (*at == '-' || *at == '+') ? *at++ : 0;
	at = skip_space(l, at);
	if (!starts_with(l, at, name))
		return NULL;
	at = skip_space(l, at + strlen(name));
	*close = at < l->end && (*at == '-' || *at == '+') ? *at++ : 0;
	return starts_with(l, at, "%}") ? at + 2 : NULL;
}

static void raw(struct lexer *l, const char *body, char sign)
{
	char open, close;
	const char *from, *end = NULL, *at = body;

	if (sign == '-')
		body = skip_space(l, body);
	from = body;
	l->line_starts = from > at && from[-1] == '\n';
	for (at = body; at < l->end && !end; at++)
		end = plain_tag(l, at, "endraw", &open, &close);
	if (!end)
		sandbox_fail(l->s, "raw has no endraw");
	go_to(l, from);
	add_text(l, from, text_end(l, from, at - 1, open, 0));
	go_to(l, end);
	after_tag(l, end, close, 1);
}

/* ---- inside of tags ---- */

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

static int32_t read_digits(const char **at, const char *end, int base, int max_count)
{
	int64_t number = 0; /* eight hexadecimal digits are more than int32_t holds */

	for (int i = 0; i < max_count && *at < end && digit_value(**at) < base; i++)
		number = number * base + digit_value(*(*at)++);
	return number < INT32_MAX ? (int32_t)number : INT32_MAX;
}

static void add_escape(struct lexer *l, struct sink *sink, const char **at, const char *end)
{
	static const char plain[] = "nrtabfv\\'\"", meant[] = "\n\r\t\a\b\f\v\\'\"";
	const char *found, *start = *at;
	utf8proc_uint8_t bytes[4];
	int count;
	int32_t c;

	if (**at == '\n') {
		++*at;
		return;
	}
	found = strchr(plain, **at);
	if (found && **at) {
		sink_add(l->s, sink, meant + (found - plain), 1);
		++*at;
		return;
	}
	count = **at == 'x' ? 2 : **at == 'u' ? 4 : **at == 'U' ? 8 : 0;
	if (count) {
		++*at;
		c = read_digits(at, end, 16, count);
		if (*at - start != count + 1 || c < 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
			sandbox_fail(l->s, "a string has an escape that is not a character");
	} else if (**at >= '0' && **at <= '7') {
		c = read_digits(at, end, 8, 3);
	} else if (**at == 'N') {
		sandbox_fail(l->s, "escapes by the name of a character are not supported; write \\uXXXX");
	} else {
		sink_add(l->s, sink, "\\", 1); /* Python keeps the backslash */
		return;
	}
	sink_add(l->s, sink, (const char *)bytes, (size_t)utf8proc_encode_char(c, bytes));
}

static void string(struct lexer *l)
{
	const char quote = *l->at, *at = l->at + 1, *plain;
	struct sink sink = {0};

	for (;;) {
		for (plain = at; at < l->end && *at != quote && *at != '\\'; at++)
			;
		sink_add(l->s, &sink, plain, (size_t)(at - plain));
		if (at >= l->end || (*at == '\\' && at + 1 >= l->end))
			sandbox_fail(l->s, "the string is not closed");
		if (*at == quote)
			break;
		at++;
		add_escape(l, &sink, &at, l->end);
	}
	add(l, TOKEN_STRING, sink_value(l->s, &sink));
	go_to(l, at + 1);
}

enum { NUMBER_BYTES_MAX = 400 };

/* Copies digits with single underscores between them to out; returns their end. */
static const char *digits(const struct lexer *l, const char *at, char *out, size_t *len, int base)
{
	while (at < l->end && *len < NUMBER_BYTES_MAX) {
		if (digit_value(*at) < base)
			out[(*len)++] = *at++;
		else if (*at == '_' && *len && at + 1 < l->end && digit_value(at[1]) < base)
			at++;
		else
			break;
	}
	return at;
}

static void number(struct lexer *l)
{
	const char *at = l->at, *mark;
	char text[NUMBER_BYTES_MAX + 8];
	size_t len = 0;
	int base = 10, real = 0;
	int64_t value;

	if (*at == '0' && at + 1 < l->end && strchr("xXoObB", at[1]) && at[1]) {
		base = tolower((unsigned char)at[1]) == 'x'   ? 16
		       : tolower((unsigned char)at[1]) == 'o' ? 8
		                                              : 2;
		at += 2;
	}
	at = digits(l, at, text, &len, base);
	if (base == 10 && at + 1 < l->end && *at == '.' && isdigit((unsigned char)at[1]) &&
	        l->at[-1] != '.') { /* at[-1] exists: a tag precedes the number */
		text[len++] = *at;
		at = digits(l, at + 1, text, &len, 10);
		real = 1;
	}
	if (base == 10 && at < l->end && (*at == 'e' || *at == 'E')) {
		mark = at + 1 + (at + 1 < l->end && (at[1] == '+' || at[1] == '-'));
		if (mark < l->end && isdigit((unsigned char)*mark)) {
			text[len++] = 'e';
			if (mark > at + 1)
				text[len++] = at[1];
			at = digits(l, mark, text, &len, 10);
			real = 1;
		}
	}
	text[len] = 0;
	errno = 0;
	value = real || base == 10 ? 0 : strtoll(text, NULL, base);
	if (errno || !len)
		sandbox_fail(l->s,
		        len ? "the number %s has more than 64 bits" : "a number lacks its digits%s", text);
	add(l, TOKEN_NUMBER,
	        real         ? value_float(strtod(text, NULL))
	        : base == 10 ? value_integer(l->s, text, len)
	                     : value_int(value));
	go_to(l, at);
}

static int is_name_char(int32_t c)
{
	switch (utf8proc_category(c)) {
	case UTF8PROC_CATEGORY_LU:
	case UTF8PROC_CATEGORY_LL:
	case UTF8PROC_CATEGORY_LT:
	case UTF8PROC_CATEGORY_LM:
	case UTF8PROC_CATEGORY_LO:
	case UTF8PROC_CATEGORY_ND:
	case UTF8PROC_CATEGORY_NL:
	case UTF8PROC_CATEGORY_MN:
	case UTF8PROC_CATEGORY_MC:
		return 1;
	default:
		return c == '_';
	}
}

static int name(struct lexer *l)
{
	const char *at = l->at;
	int32_t c;

	while (at < l->end) {
		int len = char_at(at, l->end, &c);

		if (!is_name_char(c))
			break;
		at += len;
	}
	if (at == l->at)
		return 0;
	add(l, TOKEN_NAME, value_text(l->s, l->at, (size_t)(at - l->at)));
	go_to(l, at);
	return 1;
}

/* Adds the operator at l->at. Balances brackets, so that }} can close two dicts. */
static void operator(struct lexer *l, char *brackets, int *depth)
{
	static const char *const all[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~",
	        "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"};
	enum { DEPTH_MAX = 200 };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (!starts_with(l, l->at, all[i]))
			continue;
		if (strchr("([{", *all[i])) {
			if (*depth == DEPTH_MAX)
				sandbox_fail(l->s, "brackets are nested more than %d deep", DEPTH_MAX);
			brackets[(*depth)++] = *all[i] == '(' ? ')' : *all[i] == '[' ? ']' : '}';
		} else if (strchr(")]}", *all[i])) {
			if (!*depth || brackets[--*depth] != *all[i])
				sandbox_fail(l->s, "'%s' closes nothing", all[i]);
		}
		add(l, TOKEN_OPERATOR, value_text_of(l->s, all[i], strlen(all[i])));
		go_to(l, l->at + strlen(all[i]));
		return;
	}
	sandbox_fail(l->s, "unexpected character '%.*s'", (unsigned char)*l->at < 0x80 ? 1 : 4, l->at);
}

static void inside(struct lexer *l, int is_output)
{
	const char *close = is_output ? "}}" : "%}";
	char brackets[200];
	int depth = 0;

	for (;;) {
		go_to(l, skip_space(l, l->at));
		if (l->at >= l->end)
			sandbox_fail(
			        l->s, "the template ends inside {%c ... %s", is_output ? '{' : '%', close);
		if (!depth) {
			char sign = (*l->at == '-' || (*l->at == '+' && !is_output)) &&
			                            starts_with(l, l->at + 1, close)
			                    ? *l->at
			                    : 0;

			if (sign || starts_with(l, l->at, close)) {
				add(l, is_output ? TOKEN_OUTPUT_END : TOKEN_BLOCK_END, NONE);
				after_tag(l, l->at + 2 + (sign != 0), sign, !is_output);
				return;
			}
		}
		if (*l->at == '\'' || *l->at == '"')
			string(l);
		else if (isdigit((unsigned char)*l->at))
			number(l);
		else if (!name(l))
			operator(l, brackets, &depth);
	}
}

static void tag(struct lexer *l, const char *open)
{
	int is_output = open[1] == '{', is_block = open[1] == '%';
	char sign = open + 2 < l->end && (open[2] == '-' || open[2] == '+') ? open[2] : 0, close = 0, first;
	const char *raw_body = is_block ? plain_tag(l, open, "raw", &first, &close) : NULL;

	if (close == '+') /* raw does not allow +%} */
		raw_body = NULL;

	add_text(l, l->at, text_end(l, l->at, open, sign, is_output));
	go_to(l, open);
	if (raw_body) {
		raw(l, raw_body, close);
		return;
	}
	if (is_output || is_block)
		add(l, is_output ? TOKEN_OUTPUT_BEGIN : TOKEN_BLOCK_BEGIN, NONE);
	go_to(l, open + 2 + (sign != 0));
	if (is_output || is_block)
		inside(l, is_output);
	else
		comment(l);
}

/* Converts all newlines to \n, and removes one at the very end. */
static struct text *normal_source(struct sandbox *s, const char *source, size_t len_bytes)
{
	struct sink sink = {0};
	size_t from = 0;

	for (size_t i = 0; i < len_bytes; i++) {
		if (source[i] != '\r')
			continue;
		sink_add(s, &sink, source + from, i - from);
		if (i + 1 == len_bytes || source[i + 1] != '\n')
			sink_add(s, &sink, "\n", 1);
		from = i + 1;
	}
	sink_add(s, &sink, source + from, len_bytes - from);
	if (sink.len_bytes && sink.data[sink.len_bytes - 1] == '\n')
		sink.len_bytes--;
	return sink_value(s, &sink).u.text;
}

struct token *lexer_run(struct sandbox *s, const char *source, size_t len_bytes)
{
	struct text *text = normal_source(s, source, len_bytes);
	struct lexer l = {
	        .s = s, .at = text->data, .end = text->data + text->len_bytes, .line = 1, .line_starts = 1};

	s->line = 1;
	while (l.at < l.end) {
		const char *open = l.at;

		while ((open = memchr(open, '{', (size_t)(l.end - open))) &&
		        !(open + 1 < l.end && strchr("{%#", open[1]) && open[1]))
			open++;
		if (!open) {
			add_text(&l, l.at, l.end);
			break;
		}
		tag(&l, open);
	}
	add(&l, TOKEN_END, NONE);
	return l.tokens;
}
