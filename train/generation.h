/* Texts that grow by what a model says, token by token, several at a time.
 *
 * Mental model. A text is ids: the prompt, then what was generated. With a cache each pass runs over the
 * tokens whose keys and values the cache lacks: the prompt once, then one token for each text; the weights
 * cross to the device once a pass, for all texts together. Without a cache each pass runs over whole texts,
 * as in training. A text can be taken up again with more ids (the next turn of a chat): what it still begins
 * with is in the cache.
 */
#ifndef FERRY_TRAIN_GENERATION_H
#define FERRY_TRAIN_GENERATION_H

#include "data/tokenizer/token_list.h"
#include "train/choose.h"
#include "train/session.h"

enum generation_finish { GENERATION_STOP, GENERATION_LENGTH };

struct generation_text {
	struct token_list ids;
	int64_t begin;   /* ids from here on were generated */
	int64_t cached;  /* ids that the cache has */
	int64_t reached; /* the most that it had since it began: of a window only the last of these are kept
	                  */
	enum generation_finish finish;
	int is_done;
};

/* Hears of each new id; returns 1 to end the text with it, 0, or an error. */
typedef int generation_heard(void *context, int64_t text, const struct generation_text *t);

struct generation {
	struct session *session; /* its engine was opened with these sizes */
	struct choose_options choose;
	int64_t text_tokens; /* that the cache has room for, of each text; 0: no cache */
	int64_t pass_tokens; /* of a pass at most; without a cache whole texts must fit */
	int64_t max_new_tokens;
	struct cache_shape cache; /* by generation_sizes */
	generation_heard *heard;  /* may be NULL */
	void *context;
};

/* What the engine needs for `text_count` texts. */
void generation_sizes(struct generation *g, int64_t text_count, struct engine_options *o);

/* Lets all texts grow until each ends: at an id that ends a text (the tokenizer's, or the model's), by
 * `heard`, after max_new_tokens, or where the cache is full. begin and finish are set. Collective where there
 * are ranks (texts are the same on all); ERR_NONFINITE, the engine's errors. */
int generation_run(struct generation *g, struct generation_text *texts, int64_t text_count);

/* The next ids of a text: what it shares with those that the cache has is not run again, unless a window's
 * keys are gone. Takes the list over. */
void generation_text_set(const struct generation *g, struct generation_text *t, struct token_list *ids);

#endif
