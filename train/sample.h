/* Continuing a prompt while a model trains, and the prompt's ids. */
#ifndef FERRY_TRAIN_SAMPLE_H
#define FERRY_TRAIN_SAMPLE_H

#include "train/generation.h"

/* ids of `prompt` text: as an instruction where data_format says alpaca, else as it is with the template's
 * BOS. */
int sample_prompt_ids(struct session *s, struct token_list *ids, const char *prompt);

/* Adds sample_prompt, where there is one, and its continuation to the sizes of a run. A plan needs no
 * tokenizer: each byte counts as a token then, which is at least as many. */
int sample_add_sizes(struct session *s, struct engine_options *o);

/* Sizes of a run over the rows that are open: training, evaluation, sample_prompt. */
int sample_run_sizes(struct session *s, struct engine_options *o);

/* How the keys say that the next token is chosen. */
struct choose_options sample_choose_options(const struct config *c);

/* Appends up to max_new_tokens ids. The engine must have been planned for logits of ids->count +
 * max_new_tokens tokens. */
int sample_continue(
        struct session *s, struct token_list *ids, enum generation_finish *finish, int64_t max_new_tokens);

#endif
