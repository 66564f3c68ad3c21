/* Layers of experts: the choice of a router, rows in the order of experts, and products in which each expert
 * has a matrix of its own (device/op.h has the rules for all ops).
 *
 * Each token is at `chosen` of `experts` experts. A *slot* is one of these choices: slot s is of token
 * s / chosen. A *row* is a slot's place in the order of experts, in which slots of one expert keep their
 * order: nothing is dropped, and there is no capacity. All addresses and sizes are static; how many rows an
 * expert has stands in `first` on the device.
 *
 *     ROUTE    logits -> ids, weights      ORDER    ids -> first, slot, row
 *     DISPATCH a row for each slot         GROUPED  rows times the matrix of their expert
 *     WEIGH    rows times their weights    COMBINE  the sum of a token's rows
 *
 * ROUTER_SHARES and BALANCE_GRAD are for a loss that keeps experts evenly used (model/blocks/balance.h).
 *
 * Some experts at a time: GROUPED and GROUPED_COLSUM also take `first` from expert e on, with `experts` the
 * number of those experts and b (or c) from e on. They then use and write the rows of these experts only. Ops
 * on rows have a range for this (device/row_range.h). A result does not depend on how experts are divided, to
 * the bit.
 */
#ifndef FERRY_DEVICE_OP_EXPERTS_H
#define FERRY_DEVICE_OP_EXPERTS_H

#include "base/dtype.h"
#include "device/addr.h"
#include "device/op_matmul.h"
#include "device/route_rule.h"
#include "device/row_range.h"

#define OP_EXPERTS_LIST(ROW)                                                                                 \
	ROW(ROUTE, route, route)                                                                             \
	ROW(ROUTE_GRAD, route_grad, route_grad)                                                              \
	ROW(ORDER, order, order)                                                                             \
	ROW(DISPATCH, dispatch, dispatch)                                                                    \
	ROW(COMBINE, combine, combine)                                                                       \
	ROW(WEIGH, weigh, weigh)                                                                             \
	ROW(WEIGH_GRAD, weigh_grad, weigh_grad)                                                              \
	ROW(GROUPED, grouped, grouped)                                                                       \
	ROW(GROUPED_COLSUM, grouped_colsum, grouped_colsum)                                                  \
	ROW(EXPERT_SCALE, expert_scale, expert_scale)                                                        \
	ROW(EXPERT_SCALE_GRAD, expert_scale_grad, expert_scale_grad)                                         \
	ROW(ROUTER_SHARES, router_shares, router_shares)                                                     \
	ROW(BALANCE_GRAD, balance_grad, balance_grad)

enum { ROUTE_EXPERTS_MAX = 4096, ROUTE_CHOSEN_MAX = 64, ROUTE_GROUPS_MAX = 64 };

/* The rule makes scores s of logits (F32 [tokens, experts]):
 *
 *     ROUTE_SOFTMAX  s = softmax(logits) over all experts; the largest are chosen
 *     ROUTE_SIGMOID  s = sigmoid(logits); those with the largest s + bias are chosen
 *     ROUTE_CHOSEN   the largest logits are chosen; s is the softmax over these
 *
 * With groups > 1 experts are in groups of equal size, of which the groups_chosen best take part. A group
 * counts as the sum of its two best experts with ROUTE_SIGMOID, else as its best one. Of equals the first is
 * chosen. A NaN counts as the largest, so that it reaches the weights. No expert is chosen twice. ids (int32)
 * and weights (F32), [tokens, chosen], are in the order of choice. A weight is scale * s or, with is_normed,
 * scale * s / (the sum of the token's s + norm_epsilon).
 *
 * Backward: dlogits, F32 [tokens, experts], from dweights, F32 [tokens, chosen]; the choice is constant. */
struct op_route {
	dev_addr ids, weights, logits, bias; /* bias [experts], optional, only of ROUTE_SIGMOID */
	int64_t tokens, experts, chosen, groups, groups_chosen;
	enum route_rule rule;
	enum dtype bias_dtype;
	int is_normed;
	double scale, norm_epsilon;
};
struct op_route_grad {
	dev_addr dlogits, dweights, ids, logits;
	int64_t tokens, experts, chosen;
	enum route_rule rule;
	int is_normed;
	double scale, norm_epsilon;
};

/* From ids, int32 [tokens, chosen]: first, int32 [experts + 1], the first row of each expert and, last, the
 * number of rows; slot, int32 [rows], of each row; row, int32 [tokens, chosen], of each slot. rows = tokens *
 * chosen. ids must be in 0 .. experts - 1. */
struct op_order {
	dev_addr first, slot, row, ids;
	int64_t tokens, chosen, experts;
};

/* y[r] = x[slot[r] / chosen], rows of `cols` elements without gaps. */
struct op_dispatch {
	dev_addr y, x, slot;
	int64_t tokens, chosen, cols;
	enum dtype dtype;
	struct row_range range;
};

/* y[t] (+)= the sum of x[row[s]] over the slots s of token t, in fp32, in the order of rows, so of experts;
 * with is_reversed in the opposite order. With goes_on the sum begins with y, which is F32, instead of 0: so
 * some experts after others, in the same order, give the sum of all. */
struct op_combine {
	dev_addr y, x, row;
	int64_t tokens, chosen, cols;
	enum dtype dtype, y_dtype; /* y_dtype is `dtype` or F32 */
	int accumulate;            /* not with goes_on */
	int is_reversed, goes_on;
	struct row_range range;
};

/* x[r] *= weights[slot[r]], rows of `cols` elements without gaps; without `slot` weights[r]. Backward finds
 * dy in the place of dx: dweights[slot[r]] = the sum of dy[r] * x[r]; then x[r] and dy[r] are multiplied by
 * the weight. */
struct op_weigh {
	dev_addr x, weights, slot; /* slot optional */
	int64_t rows, cols;
	enum dtype dtype;
	struct row_range range;
};
struct op_weigh_grad {
	dev_addr x, dx, dweights, weights, slot;
	int64_t rows, cols;
	enum dtype dtype;
	struct row_range range;
};

/* Products of rows with matrices of experts, b = [experts, ...] one after the other. `first` is that of
 * op_order.
 *
 *     GROUPED_ROWS     c[r] = a[r] * op(b of the row's expert): c [rows, n], a [rows, k], b [k, n] or, with
 *                      MATMUL_TRANSPOSED, [n, k]; (+)= with accumulate. bias, [experts, n] in ab_dtype, is
 *                      optional and not together with accumulate
 *     GROUPED_WEIGHTS  c of expert e (+)= (a of its rows)^T * (b of its rows): c [experts, m, n], a
 *                      [rows, m], b [rows, n]; without rows it is 0, or unchanged with accumulate
 *
 * m is only of GROUPED_WEIGHTS, k and b_layout are only of GROUPED_ROWS. */
enum grouped_kind { GROUPED_ROWS, GROUPED_WEIGHTS };
struct op_grouped {
	dev_addr c, a, b, first;
	int64_t rows, experts, m, n, k;
	enum grouped_kind of;
	enum matmul_layout b_layout;
	enum dtype ab_dtype, c_dtype;
	int accumulate;
	dev_addr bias;
	int64_t of_experts; /* that have all rows, if not `experts`; only costs depend on it */
};

/* sum[e] += the sum of the expert's rows of x: the gradient of a bias. sum: F32 [experts, cols]; x has rows
 * without gaps. */
struct op_grouped_colsum {
	dev_addr sum, x, first;
	int64_t rows, experts, cols;
	enum dtype dtype;
};

/* weights[s] *= scale[ids[s]], in fp32; scale is [experts].
 *
 * Backward: dscale, F32 [experts], += the sum over an expert's rows of dweights * weights, and then
 * dweights[s] *= scale of its expert. weights are those before op_expert_scale. */
struct op_expert_scale {
	dev_addr weights, ids, scale;
	int64_t tokens, chosen, experts;
	enum dtype dtype; /* of scale */
};
struct op_expert_scale_grad {
	dev_addr dweights, dscale, weights, first, slot, scale;
	int64_t tokens, chosen, experts;
	enum dtype dtype;
};

/* shares = softmax(logits) over all experts; both F32 [tokens, experts]. */
struct op_router_shares {
	dev_addr shares, logits;
	int64_t tokens, experts;
};

/* dlogits += the gradient of factor * the sum over tokens and experts of n[e] * softmax(logits)[t, e]. n[e],
 * a constant, is the number of rows of expert e in all `layers`, each with a `first` as of op_order, `stride`
 * int32 after the one before. counts, F32 [experts], is written with n. */
struct op_balance_grad {
	dev_addr dlogits, logits, counts, first;
	int64_t tokens, experts, layers, stride;
	double factor;
};

#endif
