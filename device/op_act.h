/* Activations, alone and gated, forward and backward (device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_ACT_H
#define FERRY_DEVICE_OP_ACT_H

#include "base/dtype.h"
#include "device/act_kind.h"
#include "device/addr.h"
#include "device/row_range.h"

#define OP_ACT_LIST(ROW)                                                                                     \
	ROW(GLU, glu, glu)                                                                                   \
	ROW(GLU_GRAD, glu_grad, glu_grad)                                                                    \
	ROW(GLU_LIMITED, glu_limited, glu_limited)                                                           \
	ROW(GLU_LIMITED_GRAD, glu_limited_grad, glu_limited_grad)                                            \
	ROW(ACT, act, act)                                                                                   \
	ROW(ACT_GRAD, act_grad, act_grad)                                                                    \
	ROW(GATE, gate, gate)                                                                                \
	ROW(GATE_GRAD, gate_grad, gate_grad)

/* out = act(gate) * up; elementwise (Shazeer 2020). With cols > 0, gate and up have rows of cols elements
 * that begin `stride` apart, as one product makes both; else all is contiguous, as out always is.
 *
 * Backward: dgate and dup, in the layout of gate and up, from dout, and if `out` is there, forward's result
 * once more. dgate may be gate, dup may be up (without cols also dout) and out may be dout, because each
 * element is read before it is written. */
struct op_glu {
	dev_addr out, gate, up;
	int64_t count;
	enum act_kind act;
	enum dtype dtype;
	int64_t cols, stride;
};
struct op_glu_grad {
	dev_addr dgate, dup, dout, gate, up;
	int64_t count;
	enum act_kind act;
	enum dtype dtype;
	int64_t cols, stride;
	dev_addr out;
};

/* The gated activation of gpt-oss, from rows of 2 * cols numbers, gates and ups by turns:
 *
 *     g = min(gate, limit), u = max(-limit, min(up, limit))
 *     out = (u + 1) g sigmoid(alpha g)
 *
 * out has rows of cols numbers. A gate or up beyond the limit gets no gradient. dgate_up may be gate_up. */
enum glu_order { GLU_BY_TURNS, GLU_HALVES, GLU_ORDER_COUNT }; /* GLU_HALVES: a row's gates, then its ups */
struct op_glu_limited {
	dev_addr out, gate_up;
	int64_t rows, cols;
	double alpha, limit;
	enum glu_order order;
	enum dtype dtype;
	struct row_range range;
};
struct op_glu_limited_grad {
	dev_addr dgate_up, dout, gate_up;
	int64_t rows, cols;
	double alpha, limit;
	enum glu_order order;
	enum dtype dtype;
	struct row_range range;
};

/* out = act(x); dx = dout * act'(x). out may be x; dx may be dout or x. */
struct op_act {
	dev_addr out, x;
	int64_t count;
	enum act_kind act;
	enum dtype dtype;
};
struct op_act_grad {
	dev_addr dx, dout, x;
	int64_t count;
	enum act_kind act;
	enum dtype dtype;
};

/* The same as op_glu for arrays with gaps: y = act(gate) * x. Row r, group g of gate starts at gate + r *
 * gate_stride + g * gate_group_stride; of x and y at r * stride + g * cols. x is optional: without it
 * y = act(gate), and there is no dx.
 *
 * Backward: dgate in the layout of gate, dx in that of x. dgate may be gate; dx may be x, or dy if their
 * strides are equal. */
struct op_gate {
	dev_addr y, x, gate;
	int64_t rows, groups, cols, x_stride, y_stride, gate_stride, gate_group_stride;
	enum act_kind act;
	enum dtype dtype;
	struct row_range range;
};
struct op_gate_grad {
	dev_addr dx, dgate, dy, x, gate;
	int64_t rows, groups, cols, x_stride, y_stride, gate_stride, gate_group_stride;
	enum act_kind act;
	enum dtype dtype;
	struct row_range range;
};

#endif
