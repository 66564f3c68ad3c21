/* Descriptions of ops with random numbers: requirements and operands. */
#include "device/op_noise.h"

#include "device/op_facts.h"

OP_NOISE_LIST(OP_DESCRIBED)

int op_describe_dropout(struct op_facts *f, const struct op_dropout *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(dst_stride, p->cols) || SIZE(src_stride, p->cols) ||
	        COMPUTE_DTYPE(dst_dtype) || COMPUTE_DTYPE(src_dtype))
		return ERR_RANGE;
	if (!(p->share >= 0 && p->share < 1))
		return op_refuse(f, "share is %g, not in [0, 1)", p->share);
	READ(src, .dtype = p->src_dtype, .rows = p->rows, .stride = p->src_stride, .cols = p->cols);
	READ(key, .dtype = DTYPE_F64, .cols = p->rows);
	WRITE_OR_ADD(dst, p->accumulate, .dtype = p->dst_dtype, .rows = p->rows, .stride = p->dst_stride,
	        .cols = p->cols);
	return 0;
}

int op_describe_neftune(struct op_facts *f, const struct op_neftune *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(key, .dtype = DTYPE_F64, .cols = p->rows);
	READ(doc_start, .dtype = DTYPE_I32, .cols = p->rows);
	READ(doc_end, .dtype = DTYPE_I32, .cols = p->rows);
	UPDATE(x, .dtype = p->dtype, .rows = p->rows, .cols = p->cols);
	return 0;
}
