/* The pre_tokenizer of tokenizer.json: cuts a text into the words that BPE works on.
 *
 * A list of steps. Each step takes the words that the one before left and cuts each further; ByteLevel
 * may put a space in front of each word, and, where more steps follow it, rewrites the text in its byte
 * alphabet, which those steps then see. Whatever way, the words come out as bytes.
 *
 * Supported: ByteLevel, Split (all behaviours, inverted or not), Digits, Punctuation, and Sequence of these;
 * exactly one ByteLevel. The rules are those of HF tokenizers' NormalizedString::split.
 */
#ifndef FERRY_DATA_TOKENIZER_PRETOKENIZER_H
#define FERRY_DATA_TOKENIZER_PRETOKENIZER_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "data/tokenizer/pattern.h"

enum split_behavior {
	SPLIT_BEHAVIOR_REMOVED,
	SPLIT_BEHAVIOR_ISOLATED,
	SPLIT_BEHAVIOR_MERGED_WITH_PREVIOUS,
	SPLIT_BEHAVIOR_MERGED_WITH_NEXT,
	SPLIT_BEHAVIOR_CONTIGUOUS,
};

enum pretokenizer_kind {
	PRETOKENIZER_KIND_SPLIT,        /* at the matches of a pattern */
	PRETOKENIZER_KIND_CLASS,        /* at the characters of a class */
	PRETOKENIZER_KIND_PREFIX_SPACE, /* a space in front of each word that has none */
	PRETOKENIZER_KIND_BYTES,        /* into the byte alphabet */
};

enum { PRETOKENIZER_STEPS_MAX = 32 };

struct pretokenizer {
	struct pretokenizer_step {
		enum pretokenizer_kind kind;
		enum split_behavior behavior;
		int invert;
		struct pattern *pattern;
		unsigned classes; /* CLASS: unicode_class bits */
	} steps[PRETOKENIZER_STEPS_MAX];
	int step_count;
	int byte_level_count; /* ByteLevels met while loading */
};

/* From the value of "pre_tokenizer". `where` is for messages. ERR_UNSUPPORTED names what is not done. */
int pretokenizer_load(
        struct pretokenizer *p, const json_t *spec, const char *where, enum pattern_engine engine);
void pretokenizer_free(struct pretokenizer *p);

struct span {
	size_t start, end;
};

/* Words of one text, and the working memory of one thread. Zero-initialise; word_list_free. */
struct word_list {
	const char *text; /* what the spans point into: the caller's text or one of the buffers */
	struct span *words;
	int64_t count;

	struct span_buffer {
		struct span *spans;
		int64_t count, cap;
	} now, next;
	struct str buffers[2];
	struct pattern_search search;
};

/* Cuts text (valid UTF-8) into list->words, none of them empty. */
int pretokenizer_run(
        const struct pretokenizer *p, struct word_list *list, const char *text, size_t len_bytes);
void word_list_free(struct word_list *list);

#endif
