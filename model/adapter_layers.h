/* Which blocks get adapters. Private to model/adapter.c. */
#ifndef FERRY_MODEL_ADAPTER_LAYERS_H
#define FERRY_MODEL_ADAPTER_LAYERS_H

#include "base/json.h"
#include "model/model.h"

/* Of the chosen matrices, keeps those of these blocks: a number, or an array of them. */
int adapter_keep_layers(char *chosen, const struct model *model, const json_t *layers);

/* Keeps those whose block is an item of one of these lists: a name, or an array of them, as expressions. */
int adapter_keep_lists(char *chosen, const struct model *model, const json_t *lists);

#endif
