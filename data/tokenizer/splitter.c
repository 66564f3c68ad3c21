/* Matches the published split patterns by hand. */
#include "data/tokenizer/splitter.h"

#include "data/tokenizer/unicode.h"

/* The kind of a character in these patterns; each character has exactly one. */
enum kind { KIND_OTHER, KIND_LETTER, KIND_NUMBER, KIND_SPACE, KIND_END };

static enum kind kind_at(const char *text, size_t len_bytes, size_t at, size_t *next)
{
	uint32_t c;
	unsigned flags;

	if (at >= len_bytes)
		return KIND_END;
	*next = at + (size_t)utf8_get(text + at, &c);
	flags = unicode_flags(c);
	if (flags & UNICODE_L)
		return KIND_LETTER;
	if (flags & UNICODE_N)
		return KIND_NUMBER;
	return flags & UNICODE_SPACE ? KIND_SPACE : KIND_OTHER;
}

/* End of the run of one kind that starts at `at`, at most max_chars characters. */
static size_t run_end(const char *text, size_t len_bytes, size_t at, enum kind kind, size_t max_chars)
{
	size_t next = at;

	while (max_chars-- > 0 && kind_at(text, len_bytes, at, &next) == kind)
		at = next;
	return at;
}

/* \s+(?!\S)|\s+ at a space: the run. If text follows and the run has several characters, all but the last. */
static size_t space_end(const char *text, size_t len_bytes, size_t at, size_t end)
{
	uint32_t c;

	if (end < len_bytes) {
		size_t last = end - (size_t)utf8_get_before(text + end, &c);

		if (last > at)
			return last;
	}
	return end;
}

/* Bytes of s, t, m, d, re, ve or ll at `at`, in lower case; else 0. */
static size_t suffix_length(const char *text, size_t len_bytes, size_t at)
{
	char a = at < len_bytes ? text[at] : 0, b = at + 1 < len_bytes ? text[at + 1] : 0;

	if (a == 's' || a == 't' || a == 'm' || a == 'd')
		return 1;
	return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 2 : 0;
}

/* Like suffix_length, in either case; U+017F counts as s. */
static size_t suffix_length_any_case(const char *text, size_t len_bytes, size_t at)
{
	char lower[2] = {0};

	for (size_t i = 0; i < 2 && at + i < len_bytes; i++) {
		char c = text[at + i];

		lower[i] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
	}
	if (lower[0] == '\xc5' && lower[1] == '\xbf')
		return 2;
	return suffix_length(lower, 2, 0);
}

size_t splitter_gpt2(const char *text, size_t len_bytes, size_t at)
{
	size_t next = at, second = at, length;
	enum kind kind;

	if (text[at] == '\'') {
		length = suffix_length(text, len_bytes, at + 1);
		if (length > 0)
			return at + 1 + length;
	}
	kind = kind_at(text, len_bytes, at, &next);
	if (text[at] == ' ') {
		enum kind after = kind_at(text, len_bytes, next, &second);

		if (after != KIND_SPACE && after != KIND_END)
			return run_end(text, len_bytes, second, after, SIZE_MAX);
	}
	next = run_end(text, len_bytes, next, kind, SIZE_MAX);
	return kind == KIND_SPACE ? space_end(text, len_bytes, at, next) : next;
}

static int is_newline(char c)
{
	return c == '\r' || c == '\n';
}

/* [^\s\p{L}\p{N}]+[\r\n]* from `at` on. */
static size_t other_end(const char *text, size_t len_bytes, size_t at)
{
	at = run_end(text, len_bytes, at, KIND_OTHER, SIZE_MAX);
	while (at < len_bytes && is_newline(text[at]))
		at++;
	return at;
}

size_t splitter_llama3(const char *text, size_t len_bytes, size_t at, int digits)
{
	size_t next = at, second = at, length;
	enum kind kind = kind_at(text, len_bytes, at, &next), after;

	if (text[at] == '\'') {
		length = suffix_length_any_case(text, len_bytes, at + 1);
		if (length > 0)
			return at + 1 + length;
	}
	if (kind == KIND_LETTER)
		return run_end(text, len_bytes, next, KIND_LETTER, SIZE_MAX);
	if (kind == KIND_NUMBER)
		return run_end(text, len_bytes, at, KIND_NUMBER, (size_t)digits);
	after = kind_at(text, len_bytes, next, &second);
	if (after == KIND_LETTER && !is_newline(text[at]))
		return run_end(text, len_bytes, second, KIND_LETTER, SIZE_MAX);
	if (kind == KIND_OTHER)
		return other_end(text, len_bytes, next);
	if (text[at] == ' ' && after == KIND_OTHER)
		return other_end(text, len_bytes, second);
	next = run_end(text, len_bytes, next, KIND_SPACE, SIZE_MAX);
	for (size_t i = next; i > at; i--) /* \s*[\r\n]+ ends at the last newline of the run */
		if (is_newline(text[i - 1]))
			return i;
	return space_end(text, len_bytes, at, next);
}
