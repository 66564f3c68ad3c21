/* What the files of adapters share; private to them. */
#ifndef FERRY_MODEL_ADAPTER_PARTS_H
#define FERRY_MODEL_ADAPTER_PARTS_H

#include "base/json.h"
#include "model/model.h"
#include "model/name_pattern.h"

struct adapter_options; /* model/adapter.h */

#define ADAPTER_ALL_LINEAR "all-linear"

/* Whether `name`, of a module or its last parts, is that of the module with the `whole` bytes at `module`. */
int adapter_names_bytes(const char *name, const char *module, size_t whole);

/* The part of a module's name that all versions of the model's class have. */
const char *adapter_common_name(const struct model *model, const char *name);

/* For adapter_name_fits: whether an expression (struct name_pattern) fits. */
int adapter_expression_fits(const void *pattern, const char *name);

/* An error for a name that is not of such a module; is_other: of one that can have no adapter. */
int adapter_fail_name(const struct model *model, const char *name, int is_other);

/* Adds the parts of a tensor of experts that a name or an expression means to chosen, as bits. A name may
 * mean one expert if others of the list mean the rest. "all-linear" means none. 1: it means some; 0, ERR_*.
 */
struct wanted_experts {
	const struct model *model;
	const struct name_pattern *pattern; /* or NULL: */
	const json_t *names;                /* a name, or a list */
};
int adapter_mark_experts(
        char *chosen, char mark, int tensor, const char *name, const struct wanted_experts *wanted);

/* Adds what the list of parameters means: all experts of a tensor, as the bit EXPERT_WHOLE alone; the
 * weights of other modules. As in PEFT, no list of blocks or of exclusions limits them. ERR_INPUT,
 * ERR_UNSUPPORTED. */
int adapter_mark_parameters(char *chosen, const struct model *model, const struct adapter_options *o);

/* Whether a name of the module fits: its own or, in a whole model, one of its versions' names. 1, 0,
 * ERR_*. */
int adapter_name_fits(const struct model *model, const char *module,
        int (*fits)(const void *wanted, const char *name), const void *wanted);

/* Whether a name or an expression means the head, also where a tied model has no tensor for it, or by the
 * name that transformers has for its module. 1, 0, ERR_*. */
int adapter_means_head(const struct model *model, const char *name, const struct name_pattern *pattern);

/* ERR_UNSUPPORTED if the name is one of embedding and head, and they are one tensor. */
int adapter_check_tied(const struct model *model, const char *name, int is_one_of_them);

/* Modules that train whole: takes their adapters away, and marks their tensors. And tensors that an adapter's
 * files have values for. */
int adapter_drop_saved(char *chosen, const struct model *model, const struct adapter_options *o);
int adapter_set_saved(struct model *model, const struct adapter_options *o);
int adapter_set_given(struct model *model, const json_t *names);

#endif
