/* The pre_tokenizer of tokenizer.json: cuts a text into the words that the model works on.
 *
 * A list of steps. A step takes one word and hands the words that it makes of it to the next step, one after
 * the other from left to right; what comes out of the last step goes to the caller. So no list of words
 * exists, however many there are. A step may rewrite: ByteLevel spells bytes in its alphabet, Metaspace puts
 * U+2581 for spaces. A ByteLevel that is the last step leaves that out where the caller wants bytes (see
 * ends_in_bytes).
 *
 * A kind of step is a row of one table. The rules are those of HF tokenizers' NormalizedString::split.
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

enum metaspace_prepend { METASPACE_ALWAYS, METASPACE_FIRST, METASPACE_NEVER };

enum { PRETOKENIZER_STEPS_MAX = 32 };

struct pretokenizer_action;

struct pretokenizer {
	struct pretokenizer_step {
		const struct pretokenizer_action *action;
		enum split_behavior behavior;
		int invert;
		struct pattern *pattern;
		unsigned classes;   /* unicode_class bits */
		uint32_t character; /* CharDelimiterSplit's */
		char mark[4];       /* Metaspace's replacement, */
		size_t mark_bytes;  /* and its length */
		enum metaspace_prepend prepend;
		int64_t length; /* FixedLength's */
	} steps[PRETOKENIZER_STEPS_MAX];
	int step_count;
	int ends_in_bytes; /* the last step is ByteLevel's alphabet */
};

#define METASPACE_KEYS "type replacement str_rep add_prefix_space prepend_scheme split"

/* Where a Metaspace (also the decoder of that name) puts its mark in front: the new key prepend_scheme, or
 * the old add_prefix_space. */
int metaspace_load(const json_t *spec, const char *where, enum metaspace_prepend *prepend);

/* From the value of "pre_tokenizer", which may be null or absent: then a text is one word. `where` is for
 * messages. ERR_UNSUPPORTED names what is not done. */
int pretokenizer_load(
        struct pretokenizer *p, const json_t *spec, const char *where, enum pattern_engine engine);
void pretokenizer_free(struct pretokenizer *p);

/* Where ends_in_bytes: leaves the alphabet out, so that words are bytes. */
void pretokenizer_drop_alphabet(struct pretokenizer *p);

/* Gets each word, never an empty one; its text lasts until it returns. Negative ends the run. */
typedef int (*pretokenizer_word)(void *user, const char *text, size_t len_bytes);

/* The working memory of one thread. Zero-initialise; pretokenizer_scratch_free. */
struct pretokenizer_scratch {
	pretokenizer_word part; /* may get the front of a long word, whole characters of it, before `word`
	                           gets the rest; NULL: words come whole */
	struct str buffers[PRETOKENIZER_STEPS_MAX];
	struct pattern_search searches[PRETOKENIZER_STEPS_MAX];
};

/* Cuts text (valid UTF-8), of which head_bytes come from the first character of the user's text (0: it begins
 * elsewhere). */
int pretokenizer_run(const struct pretokenizer *p, struct pretokenizer_scratch *scratch, const char *text,
        size_t len_bytes, size_t head_bytes, pretokenizer_word word, void *user);
void pretokenizer_scratch_free(struct pretokenizer_scratch *scratch);

#endif
