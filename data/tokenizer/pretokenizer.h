/* The pre_tokenizer of tokenizer.json: splits a text into the words that the model works on.
 *
 * It is a list of steps. A step takes one word, splits it, and passes the parts to the next step from left to
 * right. The last step passes its parts to the caller. So there is never a list of all words. A step may
 * rewrite a word: ByteLevel spells bytes in its alphabet, Metaspace replaces spaces by U+2581. If the caller
 * wants bytes, a ByteLevel as the last step does not spell them (see ends_in_bytes).
 *
 * Each kind of step is one row of a table. The rules are those of HF tokenizers' NormalizedString::split.
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

/* Reads where a Metaspace (or the decoder of that name) puts its mark in front: the new key
 * prepend_scheme, or the old add_prefix_space. */
int metaspace_load(const json_t *spec, const char *where, enum metaspace_prepend *prepend);

/* Loads the value of "pre_tokenizer". If it is null or absent, a text is one word. `where` is for messages.
 * ERR_UNSUPPORTED names the unsupported part. */
int pretokenizer_load(
        struct pretokenizer *p, const json_t *spec, const char *where, enum pattern_engine engine);
void pretokenizer_free(struct pretokenizer *p);

/* If ends_in_bytes: removes the byte alphabet, so that words are bytes. */
void pretokenizer_drop_alphabet(struct pretokenizer *p);

/* Gets each word, never an empty one. Its text is valid during the call. A negative result ends the run. */
typedef int (*pretokenizer_word)(void *user, const char *text, size_t len_bytes);

/* The working memory of one thread. Zero-initialise; pretokenizer_scratch_free. */
struct pretokenizer_scratch {
	pretokenizer_word part; /* may get the front of a long word, whole characters of it, before `word`
	                           gets the rest; NULL: words come whole */
	int is_joined; /* the text goes on after another one: no space is put before its first character */
	struct str buffers[PRETOKENIZER_STEPS_MAX];
	struct pattern_search searches[PRETOKENIZER_STEPS_MAX];
};

/* Splits text (valid UTF-8). Its first head_bytes come from the first character of the user's text (0: none
 * do). */
int pretokenizer_run(const struct pretokenizer *p, struct pretokenizer_scratch *scratch, const char *text,
        size_t len_bytes, size_t head_bytes, pretokenizer_word word, void *user);
void pretokenizer_scratch_free(struct pretokenizer_scratch *scratch);

#endif
