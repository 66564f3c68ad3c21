/* Experts of a block in parts: each part is a group of its own, so that the device holds a few of them at a
 * time instead of all (model/model.h).
 *
 *     EXPERTS becomes ROUTER | PART 0 | PART 1 | ... | PART n - 1, SUM
 *
 * ROUTER makes the norm, the choice, the order of rows and the shared expert. A PART has the matrices of some
 * experts, which are pieces of the block's tensors, and adds their rows to the F32 sum of each token. SUM
 * writes the stream. In backward a PART computes its rows again and adds the gradients of the experts' input,
 * in the opposite order. So sums do not depend on the parts, to the bit.
 */
#ifndef FERRY_MODEL_EXPERTS_PARTS_H
#define FERRY_MODEL_EXPERTS_PARTS_H

#include "model/model.h"

/* Divides the experts of every block into parts of this many, or the rest; 0: they are not divided. The
 * number is a multiple of model_experts_step. Stages and groups become others, so call it while no engine is
 * open. ERR_NOMEM leaves them as they were. */
int model_experts_divide(struct model *model, int64_t part);

/* How many they are divided into now, and a number that keeps copies at full rate: 0: none. */
int64_t model_experts_part(const struct model *model);
int64_t model_experts_part_for(const struct model *model);

/* Parts are multiples of this many experts: the pieces of tensors then begin where blocks of codes, of
 * optimizer state and of sums of squares do. 0: the experts of this model cannot be divided, or it has none.
 */
int64_t model_experts_step(const struct model *model);

#endif
