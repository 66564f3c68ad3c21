/* Generates texts with a model, token by token, several at a time.
 *
 * Mental model. A text is a list of ids: the prompt, then the generated ids. With a cache, each pass runs
 * over the tokens that the cache lacks: the whole prompt once, then one token for each text. The weights are
 * copied to the device once per pass, for all texts together. Without a cache, each pass runs over whole
 * texts, as in training. A text can continue with more ids, such as the next turn of a chat; the cache keeps
 * the part that is unchanged.
 */
#ifndef FERRY_TRAIN_GENERATION_GENERATION_H
#define FERRY_TRAIN_GENERATION_GENERATION_H

#include "data/tokenizer/token_list.h"
#include "offload/engine.h"
#include "train/generation/choose.h"

struct model;
struct tokenizer;

enum generation_finish { GENERATION_STOP, GENERATION_LENGTH };

struct generation_text {
	struct token_list ids;
	int64_t begin;   /* first generated id */
	int64_t cached;  /* number of ids in the cache */
	int64_t reached; /* maximum of `cached` so far; a window keeps only the last of these */
	int64_t number;  /* among all texts with this seed: each draws its own numbers */
	int is_long;     /* the cached keys have the rotary angles of long texts (longrope) */
	enum generation_finish finish;
	int is_done;
};

/* Called for each new id. Returns 0, 1 to end the text with it, or an error. */
typedef int generation_heard(void *context, int64_t text, const struct generation_text *t);

struct generation {
	const struct model *model;
	const struct tokenizer *tokenizer; /* its end id ends a text; NULL: the model's end ids alone */
	struct engine *engine;             /* opened with these sizes */
	int ends_by_rank0; /* 1: only rank 0 has the tokenizer, and says which id ends a text */
	struct choose_options choose;
	int64_t text_tokens; /* room in the cache for each text; 0: no cache */
	int64_t pass_tokens; /* maximum of a pass; without a cache whole texts must fit */
	int64_t max_new_tokens;
	struct cache_shape cache; /* by generation_sizes */
	generation_heard *heard;  /* may be NULL */
	void *context;
};

/* Sets the engine's sizes for `text_count` texts. */
void generation_sizes(struct generation *g, int64_t text_count, struct engine_options *o);

/* Generates until each text ends: at an end id of the tokenizer or the model, by `heard`, after
 * max_new_tokens, or when the cache is full. Sets begin and finish. Collective with several ranks (the texts
 * are the same on all). ERR_NONFINITE, the engine's errors. */
int generation_run(struct generation *g, struct generation_text *texts, int64_t text_count);

/* Sets the next ids of a text. Ids that are already in the cache do not run again, unless a window dropped
 * their keys. Takes ownership of the list. */
void generation_text_set(const struct generation *g, struct generation_text *t, struct token_list *ids);

#endif
