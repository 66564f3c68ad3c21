/* Matrices of a block that multiply the same rows, so that one product may do for all.
 *
 * Whether a block joins them follows from its tensors alone: not from the plan, the policy that makes units
 * or the number of ranks. Units hold what is joined side by side (offload/unit.h), and products rely on it.
 */
#ifndef FERRY_MODEL_JOIN_H
#define FERRY_MODEL_JOIN_H

#include "model/model.h"

enum role_join { JOIN_NONE, JOIN_QKV, JOIN_GATE_UP, JOIN_COUNT };
enum { JOIN_MOST = 3 };

/* Which tensors of the matrices are joined. */
enum join_part { JOIN_MATRIX, JOIN_BIAS, JOIN_PARTS };

/* The number of matrices of a join, and their tensors in order: [q, k, v] or [gate, up]. */
int join_count(enum role_join join);
enum tensor_role join_role(enum role_join join, enum join_part part, int n);

/* 1: the block's matrices are joined, and their biases if it has any. Those whose products read codes are
 * not: each has scales of its own. Joined tensors begin at multiples of
 * JOIN_ALIGN elements without gaps, are all frozen or all trained, and have one format. */
enum { JOIN_ALIGN = 256 };
int model_joins(const struct model *model, int layer, enum role_join join);

/* Whoever places all tensors, one after the other, calls this for each of them in the order of the table.
 * list gets those to place now, in this order: the tensor, or all of a join with the earliest of its tensors.
 * Returns their number; 0: the tensor was placed with an earlier one. */
int model_place(int list[JOIN_MOST], const struct model *model, int tensor);

#endif
