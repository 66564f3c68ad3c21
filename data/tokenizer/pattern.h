/* A regular expression of tokenizer.json, with its meaning in HF tokenizers.
 *
 * Splitters written by hand (data/tokenizer/splitter.h) match published patterns. ferry rewrites any other
 * pattern for PCRE2: classes such as \p{L} and \s become explicit ranges from our tables. HF tokenizers uses
 * Oniguruma's Ruby syntax; ferry translates or refuses by name every construct with another meaning in PCRE2.
 * A plain string matches itself.
 */
#ifndef FERRY_DATA_TOKENIZER_PATTERN_H
#define FERRY_DATA_TOKENIZER_PATTERN_H

#include <jansson.h>
#include <stddef.h>

enum pattern_kind { PATTERN_KIND_STRING, PATTERN_KIND_REGEX };

struct pattern;

/* The pattern of ByteLevel's use_regex (GPT-2), and those of Llama-3 and Qwen2. */
extern const char pattern_gpt2[], pattern_llama3[], pattern_qwen2[];

enum pattern_engine { PATTERN_ENGINE_BEST, PATTERN_ENGINE_PCRE2 };

/* text is NUL-terminated valid UTF-8. ERR_INPUT for an invalid pattern, ERR_UNSUPPORTED for a construct
 * without translation; both quote the pattern. PATTERN_ENGINE_PCRE2 never uses splitters, for tests. */
int pattern_open(struct pattern **p, enum pattern_kind kind, const char *text, enum pattern_engine engine);

/* The same from {.., "pattern": {"Regex": ".."} or {"String": ".."}, ..}; `part` is the part of the file. */
int pattern_load(struct pattern **p, const json_t *spec, const char *where, const char *part,
        enum pattern_engine engine);
void pattern_close(struct pattern *p);

/* A search in a text. For each text, zero-initialise it and set `text` and `len_bytes`; pattern_search_end at
 * the end. Threads share the pattern; a search belongs to one thread. */
struct pattern_search {
	const char *text;
	size_t len_bytes;
	size_t at;       /* where to search next */
	size_t last_end; /* end of the last match, if */
	int any;         /* there was one */
	void *match_data;
};

void pattern_search_end(struct pattern_search *s);

/* The next match, left to right, not overlapping. Skips an empty match at the end of the last one, as
 * Oniguruma's Rust binding does. 1 with *start and *end, 0 if there is none, or a negative ERR_*. */
int pattern_next(const struct pattern *p, struct pattern_search *s, size_t *start, size_t *end);

#endif
