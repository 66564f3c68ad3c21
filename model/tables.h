/* Builds the tables of a model that follow from its config and its tensors; for model/model.c. */
#ifndef FERRY_MODEL_TABLES_H
#define FERRY_MODEL_TABLES_H

#include "model/model.h"

/* A size of a tensor of this role and layer (-1: outside of blocks). */
int64_t model_dim_of(const struct model_config *c, enum model_dim dim, enum tensor_role role, int layer);

/* Fills in stages, groups and, of each tensor, the stages that read it. ERR_NOMEM; ERR_INTERNAL if no stage
 * reads a tensor. */
int model_stages_build(struct model *model);

/* Fills in the values of the model and of its stages. ERR_NOMEM; ERR_INTERNAL if there is no such stage, or
 * if a stage reads a value before it is made. */
int model_values_build(struct model *model);

/* Adds a tensor of this name (owned) to the table, and its elements to *total. */
int model_tensor_put(struct model *model, enum tensor_role role, int layer, char *name, uint64_t *total);

/* Adds those of the layers behind the pooling that the family does not name. And the sizes of their matrices.
 */
int model_pool_tensors(struct model *model, uint64_t *total);
int64_t model_pool_dim(const struct model_config *c, enum model_dim dim, enum tensor_role role);

/* ---- modules of experts (model/expert_names.h) ---- */

/* Modules in a tensor of experts' matrices: 2 of gate and up, 1 of down; 0: of another tensor. EXPERT_WHOLE
 * stands for all of them together, one parameter of transformers. */
int expert_parts(enum tensor_role role);
enum { EXPERT_WHOLE = 2 };

/* The A of the adapter of a part, or of the whole tensor; of one part both are one. ROLE_COUNT: there is no
 * such part. */
enum tensor_role expert_adapter_role(enum tensor_role matrix, int part);

/* Before ".lora_A.weight" in the table (mem_free). NULL: no memory. */
char *expert_table_module(const struct model *model, int tensor, int part);

/* The name of a module (mem_free): of expert `index` or, with -1, of all, without a number. NULL: no memory,
 * or the family has no names for single experts. */
char *expert_module(const struct model *model, int tensor, int part, int64_t index);

#endif
