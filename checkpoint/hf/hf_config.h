/* The config.json of a model as ferry writes it. */
#ifndef FERRY_CHECKPOINT_HF_HF_CONFIG_H
#define FERRY_CHECKPOINT_HF_HF_CONFIG_H

#include "checkpoint/hf/side_files.h"
#include "model/model.h"

/* Makes config.json say what differs from the original: a separate head (model_untie). ERR_INPUT: not an
 * object; ERR_NOMEM. */
int hf_config_apply(struct side_files *side, const struct model *model);

/* Turns the files in `dir` into those of the text part of a model that also reads images or sound
 * (model/families/text_part.h), without those of its processor. ERR_INPUT, ERR_IO, ERR_NOMEM. */
int hf_config_leave_text(const char *dir);

#endif
