/* Compares two models with the same tensors: do the other settings of config.json make them compute the
 * same? */
#ifndef FERRY_MODEL_COMPARE_H
#define FERRY_MODEL_COMPARE_H

#include "base/str.h"
#include "model/model_config.h"

/* 1 if they compute the same; else 0, and appends the first difference: "rms_norm_eps 1e-05, not 1e-06", the
 * value of `now` first. Only for models with equal tables of tensors. */
int model_compare(struct str *out, const struct model_config *now, const struct model_config *then);

#endif
