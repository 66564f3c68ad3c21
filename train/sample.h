/* Continuing a prompt: one token at a time from the engine's logits.
 *
 * There is no cache of keys and values: each token runs forward over the whole text so far, as training does,
 * with weights that stream through the device. Temperature 0 takes the likeliest token (the lowest id among
 * equals); otherwise temperature, top_k and top_p narrow a distribution, and the choice is a pure function of
 * (seed, position).
 */
#ifndef FERRY_TRAIN_SAMPLE_H
#define FERRY_TRAIN_SAMPLE_H

#include "data/tokenizer/token_list.h"
#include "train/session.h"

enum sample_finish { SAMPLE_STOP, SAMPLE_LENGTH };

/* ids of `prompt` text: as an instruction where data_format says alpaca, else as it is with the template's
 * BOS. */
int sample_prompt_ids(struct session *s, struct token_list *ids, const char *prompt);

/* Adds sample_prompt, where there is one, and its continuation to the sizes of a run. A plan needs no
 * tokenizer: each byte counts as a token then, which is at least as many. */
int sample_add_sizes(struct session *s, struct engine_options *o);

/* Sizes of a run over the rows that are open: training, evaluation, sample_prompt. */
int sample_run_sizes(struct session *s, struct engine_options *o);

/* Appends up to max_new_tokens ids. The engine must have been planned for logits of ids->count +
 * max_new_tokens tokens. Ends early at an id that ends a text (tokenizer's, or the model's). */
int sample_continue(
        struct session *s, struct token_list *ids, enum sample_finish *finish, int64_t max_new_tokens);

#endif
