/* What the files of adapters share; private to them. */
#ifndef FERRY_MODEL_ADAPTER_PARTS_H
#define FERRY_MODEL_ADAPTER_PARTS_H

#include "model/model.h"
#include "model/name_pattern.h"

struct adapter_options; /* model/adapter.h */

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
