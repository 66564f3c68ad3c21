/* Do two models of the same tensors compute the same? What config.json says beside shapes decides that. */
#ifndef FERRY_MODEL_COMPARE_H
#define FERRY_MODEL_COMPARE_H

#include "base/str.h"
#include "model/model_config.h"

/* 1 where they do; else 0, with the first difference appended: "rms_norm_eps 1e-05, not 1e-06", the value of
 * `now` first. Only for models whose tables of tensors are equal. */
int model_compare(struct str *out, const struct model_config *now, const struct model_config *then);

#endif
