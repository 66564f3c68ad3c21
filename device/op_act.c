/* Descriptions of activations: requirements and operands. */
#include "device/op_act.h"

#include "device/op_facts.h"

#include <inttypes.h>
#include <math.h>

OP_ACT_LIST(OP_DESCRIBED)

/* An elementwise array of the op's dtype. */
#define FLAT .dtype = p->dtype, .cols = p->count

static int check_act(const struct op_facts *f, enum act_kind act)
{
	if ((unsigned)act < ACT_KIND_COUNT)
		return 0;
	return op_refuse(f, "act is %d, not an activation", (int)act);
}

/* Gates and ups, which may have gaps. */
#define GATES_OR_FLAT                                                                                        \
	.dtype = p->dtype, .rows = p->cols ? p->count / p->cols : 1, .stride = p->stride,                    \
	.cols = p->cols ? p->cols : p->count
#define GLU_SIZES                                                                                            \
	(SIZE(count, 1) || SIZE(cols, 0) || SIZE(stride, p->cols) || COMPUTE_DTYPE(dtype) ||                 \
	        check_act(f, p->act) || check_rows(f, p->count, p->cols))

static int check_rows(const struct op_facts *f, int64_t count, int64_t cols)
{
	if (!cols || count % cols == 0)
		return 0;
	return op_refuse(f, "count is %" PRId64 ", no multiple of cols, which is %" PRId64, count, cols);
}

int op_describe_glu(struct op_facts *f, const struct op_glu *p)
{
	if (GLU_SIZES)
		return ERR_RANGE;
	READ(gate, GATES_OR_FLAT);
	READ(up, GATES_OR_FLAT);
	WRITE(out, FLAT);
	return 0;
}

int op_describe_glu_grad(struct op_facts *f, const struct op_glu_grad *p)
{
	int dout, gate, up;

	if (GLU_SIZES)
		return ERR_RANGE;
	dout = READ(dout, FLAT);
	gate = READ(gate, GATES_OR_FLAT);
	up = READ(up, GATES_OR_FLAT);
	WRITE(dgate, GATES_OR_FLAT, .may_be = BIT(gate));
	WRITE(dup, GATES_OR_FLAT, .may_be = BIT(up) | (p->cols || !dev_is_none(p->out) ? 0 : BIT(dout)));
	WRITE(out, FLAT, .optional = 1, .may_be = BIT(dout));
	return 0;
}

static int check_limited(const struct op_facts *f, double alpha, double limit, enum glu_order order)
{
	if ((unsigned)order >= GLU_ORDER_COUNT)
		return op_refuse(f, "order is %d, not an order", (int)order);
	if (!isfinite(alpha) || !(limit > 0))
		return op_refuse(f, "alpha %g must be finite, limit %g above 0", alpha, limit);
	return 0;
}

#define LIMITED_SIZES                                                                                        \
	(SIZE(rows, 1) || SIZE(cols, 1) || COMPUTE_DTYPE(dtype) || RANGE_SIZE ||                             \
	        check_limited(f, p->alpha, p->limit, p->order))
#define BOTH .dtype = p->dtype, .rows = p->rows, .cols = size_times(2, p->cols), RANGE_ROWS(p->rows)
#define ONE .dtype = p->dtype, .rows = p->rows, .cols = p->cols, RANGE_ROWS(p->rows)

int op_describe_glu_limited(struct op_facts *f, const struct op_glu_limited *p)
{
	if (LIMITED_SIZES)
		return ERR_RANGE;
	READ(gate_up, BOTH);
	RANGE;
	WRITE(out, ONE);
	return 0;
}

int op_describe_glu_limited_grad(struct op_facts *f, const struct op_glu_limited_grad *p)
{
	int gate_up;

	if (LIMITED_SIZES)
		return ERR_RANGE;
	READ(dout, ONE);
	gate_up = READ(gate_up, BOTH);
	RANGE;
	WRITE(dgate_up, BOTH, .may_be = BIT(gate_up));
	return 0;
}

int op_describe_act(struct op_facts *f, const struct op_act *p)
{
	int x;

	if (SIZE(count, 1) || COMPUTE_DTYPE(dtype) || check_act(f, p->act))
		return ERR_RANGE;
	x = READ(x, FLAT);
	WRITE(out, FLAT, .may_be = BIT(x));
	return 0;
}

int op_describe_act_grad(struct op_facts *f, const struct op_act_grad *p)
{
	int dout, x;

	if (SIZE(count, 1) || COMPUTE_DTYPE(dtype) || check_act(f, p->act))
		return ERR_RANGE;
	dout = READ(dout, FLAT);
	x = READ(x, FLAT);
	WRITE(dx, FLAT, .may_be = BIT(dout) | BIT(x));
	return 0;
}

#define GATE_SIZES                                                                                           \
	(SIZE(rows, 1) || SIZE(groups, 1) || SIZE(cols, 1) ||                                                \
	        SIZE(x_stride, size_times(p->groups, p->cols)) ||                                            \
	        SIZE(y_stride, size_times(p->groups, p->cols)) || SIZE(gate_group_stride, p->cols) ||        \
	        SIZE(gate_stride, size_of_row(p->groups, p->gate_group_stride, p->cols)) ||                  \
	        COMPUTE_DTYPE(dtype) || RANGE_SIZE || check_act(f, p->act))
#define ROWS(which)                                                                                          \
	.dtype = p->dtype, .rows = p->rows, .stride = p->which##_stride,                                     \
	.cols = size_times(p->groups, p->cols), RANGE_ROWS(p->rows)
#define GATES                                                                                                \
	.dtype = p->dtype, .rows = p->rows, .stride = p->gate_stride, .groups = p->groups,                   \
	.group_stride = p->gate_group_stride, .cols = p->cols, RANGE_ROWS(p->rows)

int op_describe_gate(struct op_facts *f, const struct op_gate *p)
{
	if (GATE_SIZES)
		return ERR_RANGE;
	READ(x, ROWS(x), .optional = 1);
	READ(gate, GATES);
	RANGE;
	WRITE(y, ROWS(y));
	return 0;
}

int op_describe_gate_grad(struct op_facts *f, const struct op_gate_grad *p)
{
	int dy, x, gate;

	if (GATE_SIZES)
		return ERR_RANGE;
	dy = READ(dy, ROWS(y));
	x = READ(x, ROWS(x), .optional = dev_is_none(p->dx));
	gate = READ(gate, GATES);
	RANGE;
	WRITE(dx, ROWS(x), .optional = dev_is_none(p->x),
	        .may_be = BIT(x) | (p->x_stride == p->y_stride ? BIT(dy) : 0));
	WRITE(dgate, GATES, .may_be = BIT(gate));
	return 0;
}
