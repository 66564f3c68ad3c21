/* Compares two models with the same tensors: do their other settings in config.json give the same results? */
#ifndef FERRY_MODEL_COMPARE_H
#define FERRY_MODEL_COMPARE_H

#include "base/str.h"
#include "model/model_config.h"

/* 1 if they compute the same. Else 0, and appends the first difference, such as "rms_norm_eps 1e-05, not
 * 1e-06" with the value of `now` first. The models must have equal tables of tensors. */
int model_compare(struct str *out, const struct model_config *now, const struct model_config *then);

#endif
