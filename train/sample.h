/* Continues a prompt while a model trains. */
#ifndef FERRY_TRAIN_SAMPLE_H
#define FERRY_TRAIN_SAMPLE_H

#include "train/generation/generation.h"
#include "train/session.h"

/* The ids of the len_bytes bytes of `prompt`: as an instruction with data_format=alpaca, else unchanged with
 * the template's BOS. */
int sample_prompt_ids(struct session *s, struct token_list *ids, const char *prompt, size_t len_bytes);

/* Adds sample_prompt, if set, and its continuation to the sizes of a run. A plan needs no tokenizer; it
 * counts each byte as a token, an upper bound. */
int sample_add_sizes(struct session *s, struct engine_options *o);

/* Sets the sizes of a run over the open rows: training, evaluation, sample_prompt. */
int sample_run_sizes(struct session *s, struct engine_options *o);

/* Lets a generation run on a session with an open engine; borrows of it. */
void sample_attach(struct generation *g, const struct session *s);

/* Appends up to max_new_tokens ids. The engine's plan must allow logits of ids->count + max_new_tokens
 * tokens. */
int sample_continue(
        struct session *s, struct token_list *ids, enum generation_finish *finish, int64_t max_new_tokens);

#endif
