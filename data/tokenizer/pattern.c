/* Finds the matches of a pattern: with a splitter, or with PCRE2. */
#include "data/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenizer/pattern_translate.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/unicode.h"

const char pattern_gpt2[] =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char pattern_llama3[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
                              " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char pattern_qwen2[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                             " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

enum { PATTERN_BYTES_MAX = 1 << 16, MATCH_LIMIT = 1 << 30 };

enum matcher { MATCHER_STRING, MATCHER_GPT2, MATCHER_LLAMA3, MATCHER_QWEN2, MATCHER_PCRE2 };

struct pattern {
	enum matcher matcher;
	char *text;
	size_t len_bytes;
	pcre2_code *code;
	pcre2_match_context *context;
};

static void pcre2_text(int code, char *text, size_t cap_bytes)
{
	if (pcre2_get_error_message(code, (PCRE2_UCHAR *)text, cap_bytes) < 0)
		text[0] = 0;
}

static int compile(struct pattern *p)
{
	struct str translated = {0};
	char text[128];
	int code, rc = pattern_translate(&translated, p->text);
	PCRE2_SIZE offset;

	if (rc < 0)
		goto out;
	p->code = pcre2_compile((PCRE2_SPTR)translated.data, translated.len_bytes,
	        PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK, &code, &offset, NULL);
	if (!p->code) {
		pcre2_text(code, text, sizeof(text));
		rc = err_set(code == PCRE2_ERROR_NOMEMORY ? ERR_NOMEM : ERR_INPUT,
		        "the pattern '%.400s' is broken: %s", p->text, text);
		goto out;
	}
	pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* may fail: then matching is only slower */
	p->context = pcre2_match_context_create(NULL);
	if (!p->context) {
		rc = err_set(ERR_NOMEM, "out of memory for a pattern");
		goto out;
	}
	pcre2_set_match_limit(p->context, MATCH_LIMIT);
out:
	str_free(&translated);
	return rc;
}

int pattern_open(struct pattern **out, enum pattern_kind kind, const char *text, enum pattern_engine engine)
{
	struct pattern *p = NULL;
	int rc = 0;

	*out = NULL;
	if (strlen(text) > PATTERN_BYTES_MAX)
		return err_set(ERR_INPUT, "a pattern of %zu bytes; the limit is %d", strlen(text),
		        PATTERN_BYTES_MAX);
	if (text[0] == 0)
		return err_set(ERR_INPUT, "an empty pattern");
	unicode_init();
	p = mem_alloc(1, sizeof(*p));
	if (!p)
		return ERR_NOMEM;
	p->text = mem_strdup(text);
	if (!p->text) {
		pattern_close(p);
		return ERR_NOMEM;
	}
	p->len_bytes = strlen(text);
	p->matcher = MATCHER_PCRE2;
	if (kind == PATTERN_KIND_STRING)
		p->matcher = MATCHER_STRING;
	else if (engine == PATTERN_ENGINE_BEST && strcmp(text, pattern_gpt2) == 0)
		p->matcher = MATCHER_GPT2;
	else if (engine == PATTERN_ENGINE_BEST && strcmp(text, pattern_llama3) == 0)
		p->matcher = MATCHER_LLAMA3;
	else if (engine == PATTERN_ENGINE_BEST && strcmp(text, pattern_qwen2) == 0)
		p->matcher = MATCHER_QWEN2;
	else
		rc = compile(p);
	if (rc < 0) {
		pattern_close(p);
		return rc;
	}
	*out = p;
	return 0;
}

int pattern_load(struct pattern **p, const json_t *spec, const char *where, const char *part,
        enum pattern_engine engine)
{
	const json_t *value = json_object_get(spec, "pattern");
	const char *text = NULL, *key = "Regex";
	int rc;

	if (json_is_string(value)) /* old files have it in the decoder Replace */
		return pattern_open(p, PATTERN_KIND_STRING, json_string_value(value), engine);
	if (!json_is_object(value) || json_object_size(value) != 1)
		return err_set(
		        ERR_INPUT, "%s: %s: a pattern is {\"Regex\": ..} or {\"String\": ..}", where, part);
	if (!json_object_get(value, key))
		key = "String";
	rc = json_get_str(value, where, key, &text);
	if (rc < 0)
		return rc;
	if (rc == 0)
		return err_set(
		        ERR_UNSUPPORTED, "%s: %s: a pattern that is neither Regex nor String", where, part);
	if (strlen(text) != json_string_length(json_object_get(value, key)))
		return err_set(ERR_UNSUPPORTED, "%s: %s: a pattern with a NUL", where, part);
	rc = pattern_open(
	        p, strcmp(key, "Regex") == 0 ? PATTERN_KIND_REGEX : PATTERN_KIND_STRING, text, engine);
	return rc < 0 ? err_note(rc, "%s: %s", where, part) : 0;
}

void pattern_close(struct pattern *p)
{
	if (!p)
		return;
	pcre2_code_free(p->code);
	pcre2_match_context_free(p->context);
	mem_free(p->text);
	mem_free(p);
}

void pattern_search_end(struct pattern_search *s)
{
	pcre2_match_data_free(s->match_data);
	*s = (struct pattern_search){0};
}

/* One PCRE2 match at or after s->at: 1, 0, or an error. */
static int match_pcre2(const struct pattern *p, struct pattern_search *s, size_t *start, size_t *end)
{
	char text[128];
	int rc;

	if (!s->match_data)
		s->match_data = pcre2_match_data_create(1, NULL);
	if (!s->match_data)
		return err_set(ERR_NOMEM, "out of memory for a match");
	rc = pcre2_match(p->code, (PCRE2_SPTR)s->text, s->len_bytes, s->at, PCRE2_NO_UTF_CHECK, s->match_data,
	        p->context);
	if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps its stack on the heap */
		rc = pcre2_match(p->code, (PCRE2_SPTR)s->text, s->len_bytes, s->at,
		        PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match_data, p->context);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc < 0) {
		pcre2_text(rc, text, sizeof(text));
		return err_set(rc == PCRE2_ERROR_NOMEMORY ? ERR_NOMEM : ERR_INPUT,
		        "the pattern '%.300s' fails on a piece of %zu bytes, at its byte %zu: %s", p->text,
		        s->len_bytes, s->at, text);
	}
	PCRE2_SIZE *ends = pcre2_get_ovector_pointer(s->match_data);

	*start = ends[0];
	*end = ends[1];
	return 1;
}

static int match_string(const struct pattern *p, const struct pattern_search *s, size_t *start, size_t *end)
{
	const char *from = s->text + s->at;
	size_t left = s->len_bytes - s->at;
	const char *found = p->len_bytes == 1 ? memchr(from, p->text[0], left)
	                                      : memmem(from, left, p->text, p->len_bytes);

	if (!found)
		return 0;
	*start = (size_t)(found - s->text);
	*end = *start + p->len_bytes;
	return 1;
}

int pattern_next(const struct pattern *p, struct pattern_search *s, size_t *start, size_t *end)
{
	while (s->at <= s->len_bytes) {
		int rc = 1;

		if (p->matcher == MATCHER_PCRE2) {
			rc = match_pcre2(p, s, start, end);
		} else if (p->matcher == MATCHER_STRING) {
			rc = match_string(p, s, start, end);
		} else {
			*start = s->at;
			if (s->at == s->len_bytes)
				return 0;
			if (p->matcher == MATCHER_GPT2)
				*end = splitter_gpt2(s->text, s->len_bytes, s->at);
			else
				*end = splitter_llama3(
				        s->text, s->len_bytes, s->at, p->matcher == MATCHER_LLAMA3 ? 3 : 1);
		}
		if (rc <= 0)
			return rc;
		if (*start == *end && s->any && s->last_end == *end) {
			uint32_t c;

			s->at += s->at < s->len_bytes ? (size_t)utf8_get(s->text + s->at, &c) : 1;
			continue;
		}
		s->at = s->last_end = *end;
		s->any = 1;
		return 1;
	}
	return 0;
}
