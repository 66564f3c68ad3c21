/* Which tensors train: freeze=REGEX and trainable=REGEX.
 *
 * A pattern (PCRE2) is held against whole parameter names of HuggingFace, as the table has them
 * ("model.layers.0.self_attn.q_proj.weight"). What matches `freeze` keeps its value; with `trainable`, what
 * does not match that does. A tied head is one tensor with the embedding and goes by either name.
 */
#ifndef FERRY_MODEL_FREEZE_H
#define FERRY_MODEL_FREEZE_H

#include "base/str.h"
#include "model/model.h"

/* Sets `trainable` of every tensor; a NULL pattern is none. Call before anything was derived from the tables.
 * ERR_INPUT where a pattern is no regular expression or matches no name (with the nearest names), and where
 * nothing is left to train. */
int model_freeze(struct model *model, const char *freeze, const char *trainable);

/* Elements that train. */
int64_t model_trained_count(const struct model *model);

/* Appends how many parameters train, and which: "2M of 8B parameters (6B frozen): model.layers.2-3, lm_head".
 */
void model_trained_words(struct str *out, const struct model *model);

#endif
