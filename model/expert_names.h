/* Names of the modules of single experts, whose matrices a table has in one tensor, and of their adapters.
 *
 * The table's "mlp.experts.gate_up_proj" has two parts, the modules "mlp.experts.3.gate_proj" and
 * "mlp.experts.3.up_proj" of each expert; a family's splits say so. A module's adapter is one of all experts:
 * "mlp.experts.gate_proj.lora_A.weight", A [E rank, in] and B [E out, rank], expert after expert. Files of
 * PEFT have a tensor for each. Or gate and up have one adapter, "mlp.experts.gate_up_proj.lora_A.weight", as
 * PEFT makes of a parameter (checkpoint/hf/peft_experts.h).
 */
#ifndef FERRY_MODEL_EXPERT_NAMES_H
#define FERRY_MODEL_EXPERT_NAMES_H

#include "model/tables.h" /* IWYU pragma: export */

/* The name of an expert's tensor in PEFT's files, without PEFT's prefix, for A or B of all (mem_free). Of
 * gate and up together: that of one of these parts. NULL: as expert_module. */
char *expert_adapter_name(const struct model *model, int adapter, int part, int64_t index);

/* The matrix of an adapter of experts, and the part of it, or EXPERT_WHOLE. */
int expert_matrix_of(const struct model *model, int adapter, int *part);

/* The name of the single expert's tensor with an element of a tensor of all, of matrices or of an adapter,
 * without PEFT's prefix (mem_free). NULL: it is another tensor, or as expert_module. */
char *expert_name_at(const struct model *model, int tensor, int64_t element);

/* The adapter that has a file's tensor of this name, and the expert; -1: none. */
int expert_adapter_find(const struct model *model, const char *name, int64_t *index);

/* 1: fits(arg, name) says so of the modules of all experts; 0: of none. ERR_INPUT: of some only; ERR_NOMEM,
 * or what fits returns below 0. */
int expert_match(const struct model *model, int tensor, int part,
        int (*fits)(const void *arg, const char *module), const void *arg);

/* 1: A or B of all experts' modules. */
int expert_is_adapter(enum tensor_role role);

#endif
