/* The names of a model's modules, for messages. */
#ifndef FERRY_MODEL_MODULE_NAMES_H
#define FERRY_MODEL_MODULE_NAMES_H

#include "base/str.h"
#include "model/model.h"

/* Appends a name of so many bytes to "a, b", unless it is there. */
void name_list_add(struct str *list, const char *name, size_t len);

/* Appends the modules that can have adapters, or those that have one, as "q_proj, k_proj": the last part of
 * each name, once. */
void model_list_modules(struct str *out, const struct model *model, int is_adapted);

#endif
