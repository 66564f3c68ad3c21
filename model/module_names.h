/* The names of a model's modules and parameters. */
#ifndef FERRY_MODEL_MODULE_NAMES_H
#define FERRY_MODEL_MODULE_NAMES_H

#include "base/str.h"
#include "model/model.h"

/* Appends a name of so many bytes to "a, b", unless it is there. */
void name_list_add(struct str *list, const char *name, size_t len);

/* A tensor's name among the parameters of transformers 5, with the table's prefix (mem_free): of experts'
 * matrices "...mlp.experts.gate_up_proj". NULL: no memory. */
char *model_parameter_name(const struct model *model, int tensor);

/* The reverse, of any name (mem_free): as the model's files call what transformers 5 has renamed. */
char *model_file_name(const struct model *model, const char *name);

/* Appends the modules that can have adapters, or those that have one, as "q_proj, k_proj": the last part of
 * each name, once. */
void model_list_modules(struct str *out, const struct model *model, int is_adapted);

#endif
