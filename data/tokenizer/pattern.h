/* A regular expression of tokenizer.json, with the meaning that HF tokenizers gives it.
 *
 * Published patterns are matched by splitters written by hand (data/tokenizer/splitter.h). Any other one is
 * rewritten for PCRE2: classes such as \p{L} and \s become the explicit ranges of our tables, and what the
 * two dialects read differently (Oniguruma's Ruby syntax there) is either translated or refused by name. A
 * plain string matches itself.
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

/* text is NUL-terminated valid UTF-8. ERR_INPUT for a broken pattern, ERR_UNSUPPORTED for a construct that is
 * not translated; both quote the pattern. PATTERN_ENGINE_PCRE2 keeps the splitters out, for tests. */
int pattern_open(struct pattern **p, enum pattern_kind kind, const char *text, enum pattern_engine engine);

/* The same from {.., "pattern": {"Regex": ".."} or {"String": ".."}, ..}; `part` is the part of the file. */
int pattern_load(struct pattern **p, const json_t *spec, const char *where, const char *part,
        enum pattern_engine engine);
void pattern_close(struct pattern *p);

/* Where the search stands in a text; zero-initialise for each text, then set `text` and `len_bytes`.
 * pattern_search_end when done. The pattern is shared, a search belongs to one thread. */
struct pattern_search {
	const char *text;
	size_t len_bytes;
	size_t at;       /* where to look next */
	size_t last_end; /* end of the last match; */
	int any;         /* there was one */
	void *match_data;
};

void pattern_search_end(struct pattern_search *s);

/* The next match, left to right, not overlapping; an empty one at the end of the last is passed over, as
 * in Oniguruma's Rust binding. 1 with *start and *end, 0 when there is none, negative ERR_*. */
int pattern_next(const struct pattern *p, struct pattern_search *s, size_t *start, size_t *end);

#endif
