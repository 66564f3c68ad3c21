/* FP8 products (compute_dtype=fp8): which matrices have them, and models that cannot.
 *
 * Each matrix of a block multiplies activations, and gradients of its output, as codes of E4M3: rows have a
 * scale for each 128 elements, the matrix one for each square of 128 x 128 (device/op_coded.h). Codes of a
 * frozen matrix are those in memory: of files in FP8 the files' own. Those of a trained one are made of its
 * bf16 weights. All else is as with compute_dtype=bf16, the gradient of the matrix itself among it.
 */
#ifndef FERRY_TRAIN_PRODUCTS_H
#define FERRY_TRAIN_PRODUCTS_H

#include "config/config.h"
#include "model/model.h"

int products_are_fp8(const struct config *c);

/* The format of the codes. */
const struct weight_format *products_format(void);

/* ERR_UNSUPPORTED: the model, its adapter or its files have products that FP8 lacks. Nothing for others. */
int products_check(const struct model *model, const struct config *c);

/* Sets `multiplied` of all matrices, or of none. Needs to know in which formats memory has them (`kept`).
 * ERR_UNSUPPORTED: a format that is not the codes'. */
int products_set(struct model *model, const struct config *c);

#endif
