/* Chooses the tensors that train: freeze=REGEX and trainable=REGEX.
 *
 * A pattern (PCRE2) must match a whole HuggingFace parameter name of the table
 * ("model.layers.0.self_attn.q_proj.weight"). Tensors that match `freeze` are frozen. With `trainable`,
 * tensors that do not match it are frozen. A tied head and the embedding are one tensor, and both names
 * apply to it.
 */
#ifndef FERRY_MODEL_FREEZE_H
#define FERRY_MODEL_FREEZE_H

#include "base/str.h"
#include "model/model.h"

/* Sets `trainable` of every tensor; NULL means no pattern. Call before anything uses the tables. ERR_INPUT
 * if a pattern is not a regular expression or matches no name (the text has the nearest names), or if
 * nothing is left to train. */
int model_freeze(struct model *model, const char *freeze, const char *trainable);

/* Number of trained elements. */
int64_t model_trained_count(const struct model *model);

/* Appends the number and names of trained parameters: "2M of 8B parameters (6B frozen): model.layers.2-3,
 * lm_head". */
void model_trained_words(struct str *out, const struct model *model);

#endif
