/* Builds the tables of a model that follow from its config and its tensors; for model/model.c. */
#ifndef FERRY_MODEL_TABLES_H
#define FERRY_MODEL_TABLES_H

#include "model/model.h"

/* Fills in stages, groups and, of each tensor, the stages that read it. ERR_NOMEM; ERR_INTERNAL if no stage
 * reads a tensor. */
int model_stages_build(struct model *model);

/* Fills in the values of the model and of its stages. ERR_NOMEM; ERR_INTERNAL if there is no such stage, or
 * if a stage reads a value before it is made. */
int model_values_build(struct model *model);

#endif
