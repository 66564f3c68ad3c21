/* The config.json of a model as ferry writes it. */
#ifndef FERRY_CHECKPOINT_HF_CONFIG_H
#define FERRY_CHECKPOINT_HF_CONFIG_H

#include "checkpoint/side_files.h"
#include "model/model.h"

/* Makes config.json say what differs from the original: a separate head (model_untie), or that the model is
 * the text part of a larger one (model/families/text_part.h). ERR_INPUT: not an object; ERR_NOMEM. */
int hf_config_apply(struct side_files *side, const struct model *model);

#endif
