/* Descriptions of ops of magnitudes: requirements and operands. */
#include "device/op_magnitude.h"

#include "device/op_facts.h"

OP_MAGNITUDE_LIST(OP_DESCRIBED)

int op_describe_row_norms(struct op_facts *f, const struct op_row_norms *p)
{
	int64_t cols = p->in_out ? p->out : p->in;

	if (SIZE(out, 1) || SIZE(in, 1) || SIZE(rank, 1) || SIZE(w_stride, cols) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(w, .dtype = p->dtype, .rows = p->in_out ? p->in : p->out, .stride = p->w_stride, .cols = cols);
	READ(a, .dtype = p->dtype, .rows = p->rank, .cols = p->in);
	READ(b, .dtype = p->dtype, .rows = p->out, .cols = p->rank);
	WRITE(norm, .dtype = DTYPE_F32, .cols = p->out);
	f->flops = 2.0 * (double)p->out * (double)p->in * (double)p->rank;
	f->flops_dtype = DTYPE_F32;
	return 0;
}

int op_describe_magnitude(struct op_facts *f, const struct op_magnitude *p)
{
	int src;

	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(dst_stride, p->cols) || SIZE(src_stride, p->cols) ||
	        COMPUTE_DTYPE(dtype) || COMPUTE_DTYPE(dst_dtype) || COMPUTE_DTYPE(src_dtype))
		return ERR_RANGE;
	src = READ(src, .dtype = p->src_dtype, .rows = p->rows, .stride = p->src_stride, .cols = p->cols);
	READ(magnitude, .dtype = p->dtype, .cols = p->cols);
	READ(norm, .dtype = DTYPE_F32, .cols = p->cols);
	READ(bias, .dtype = p->dtype, .cols = p->cols, .optional = 1);
	WRITE_OR_ADD(dst, p->accumulate, .dtype = p->dst_dtype, .rows = p->rows, .stride = p->dst_stride,
	        .cols = p->cols,
	        .may_be = p->dst_dtype == p->src_dtype && p->dst_stride == p->src_stride ? BIT(src) : 0);
	return 0;
}

int op_describe_magnitude_grad(struct op_facts *f, const struct op_magnitude_grad *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(dy_stride, p->cols) || SIZE(y_stride, p->cols) ||
	        COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(dy, .dtype = p->dtype, .rows = p->rows, .stride = p->dy_stride, .cols = p->cols);
	READ(y, .dtype = p->dtype, .rows = p->rows, .stride = p->y_stride, .cols = p->cols);
	READ(norm, .dtype = DTYPE_F32, .cols = p->cols);
	UPDATE(grad, .dtype = DTYPE_F32, .cols = p->cols);
	return 0;
}
