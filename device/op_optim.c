/* Descriptions of sums of squares and AdamW: requirements and operands. */
#include "device/op_optim.h"

#include "device/op_facts.h"

#include <inttypes.h>

OP_OPTIM_LIST(OP_DESCRIBED)

static int64_t blocks_of(int64_t count, int64_t block)
{
	return (count - 1) / block + 1;
}

int op_describe_sumsq(struct op_facts *f, const struct op_sumsq *p)
{
	if (SIZE(count, 1) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(x, .dtype = p->dtype, .cols = p->count);
	WRITE(partial, .dtype = DTYPE_F64, .cols = blocks_of(p->count, SUMSQ_BLOCK));
	return 0;
}

int op_describe_cast_sumsq(struct op_facts *f, const struct op_cast_sumsq *p)
{
	if (SIZE(count, 1))
		return ERR_RANGE;
	READ(src, .dtype = DTYPE_F32, .cols = p->count);
	WRITE(dst, .dtype = DTYPE_BF16, .cols = p->count);
	WRITE(partial, .dtype = DTYPE_F64, .cols = blocks_of(p->count, SUMSQ_BLOCK));
	return 0;
}

int op_describe_adamw(struct op_facts *f, const struct op_adamw *p)
{
	const struct format_facts *state;

	if (SIZE(count, 1) || SIZE(first, 0) || SIZE(tensor, 0) || COMPUTE_DTYPE(grad_dtype))
		return ERR_RANGE;
	if ((unsigned)p->state >= ADAMW_STATE_COUNT)
		return op_refuse(f, "state is %d", (int)p->state);
	state = adamw_state_format(p->state);
	if (state->block && p->first % state->block)
		return op_refuse(f, "first is %" PRId64 ", must be a multiple of %d", p->first, state->block);
	READ(grad, .dtype = p->grad_dtype, .cols = p->count);
	UPDATE(hi, .dtype = DTYPE_BF16, .cols = p->count);
	UPDATE(lo, .dtype = DTYPE_I16, .cols = p->count);
	UPDATE(m, .dtype = state->element, .cols = p->count);
	UPDATE(v, .dtype = state->element, .cols = p->count);
	if (!state->block)
		return 0;
	UPDATE(m_scale, .dtype = state->scale, .cols = blocks_of(p->count, state->block));
	UPDATE(v_scale, .dtype = state->scale, .cols = blocks_of(p->count, state->block));
	return 0;
}
