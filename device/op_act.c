/* Descriptions of activations: requirements and operands. */
#include "device/op_act.h"

#include "device/op_facts.h"

OP_ACT_LIST(OP_DESCRIBED)

/* An elementwise array of the op's dtype. */
#define FLAT .dtype = p->dtype, .cols = p->count

static int check_act(const struct op_facts *f, enum act_kind act)
{
	if ((unsigned)act < ACT_KIND_COUNT)
		return 0;
	return op_refuse(f, "act is %d, not an activation", (int)act);
}

int op_describe_glu(struct op_facts *f, const struct op_glu *p)
{
	if (SIZE(count, 1) || COMPUTE_DTYPE(dtype) || check_act(f, p->act))
		return ERR_RANGE;
	READ(gate, FLAT);
	READ(up, FLAT);
	WRITE(out, FLAT);
	return 0;
}

int op_describe_glu_grad(struct op_facts *f, const struct op_glu_grad *p)
{
	int dout, gate, up;

	if (SIZE(count, 1) || COMPUTE_DTYPE(dtype) || check_act(f, p->act))
		return ERR_RANGE;
	dout = READ(dout, FLAT);
	gate = READ(gate, FLAT);
	up = READ(up, FLAT);
	WRITE(dgate, FLAT, .may_be = BIT(gate));
	WRITE(dup, FLAT, .may_be = BIT(up) | BIT(dout));
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
