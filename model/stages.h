/* Builds the stages of a model and their groups from its config and its tensors. */
#ifndef FERRY_MODEL_STAGES_H
#define FERRY_MODEL_STAGES_H

#include "model/model.h"

/* Fills in stages, groups and, of each tensor, the stages that read it. ERR_NOMEM; ERR_INTERNAL if no stage
 * reads a tensor. */
int model_stages_build(struct model *model);

#endif
