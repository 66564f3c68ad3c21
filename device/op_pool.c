/* Descriptions of pooling ops: requirements and operands. */
#include "device/op_pool.h"

#include "device/op_facts.h"

OP_POOL_LIST(OP_DESCRIBED)

int op_describe_pool_max(struct op_facts *f, const struct op_pool_max *p)
{
	if (SIZE(documents, 1) || SIZE(cols, 1) || SIZE(rows, 1) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(x, .dtype = p->dtype, .rows = p->rows, .cols = p->cols);
	READ(first, .dtype = DTYPE_I32, .cols = p->documents);
	READ(last, .dtype = DTYPE_I32, .cols = p->documents);
	WRITE(out, .dtype = DTYPE_F32, .rows = p->documents, .cols = p->cols);
	WRITE(place, .dtype = DTYPE_I32, .rows = p->documents, .cols = p->cols);
	return 0;
}

int op_describe_pool_max_grad(struct op_facts *f, const struct op_pool_max_grad *p)
{
	if (SIZE(documents, 1) || SIZE(cols, 1) || SIZE(rows, 1))
		return ERR_RANGE;
	READ(dout, .dtype = DTYPE_F32, .rows = p->documents, .cols = p->cols);
	READ(place, .dtype = DTYPE_I32, .rows = p->documents, .cols = p->cols);
	UPDATE(dx, .dtype = DTYPE_F32, .rows = p->rows, .cols = p->cols, .used_rows = p->documents);
	return 0;
}
