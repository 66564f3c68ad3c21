/* Description of a matrix product: requirements, operands and arithmetic. */
#include "device/op_matmul.h"

#include "device/op_facts.h"

OP_MATMUL_LIST(OP_DESCRIBED)

int op_describe_matmul(struct op_facts *f, const struct op_matmul *p)
{
	int a_turned = p->a_layout == MATMUL_TRANSPOSED, b_turned = p->b_layout == MATMUL_TRANSPOSED;
	int64_t a_rows = a_turned ? p->k : p->m, a_cols = a_turned ? p->m : p->k;
	int64_t b_rows = b_turned ? p->n : p->k, b_cols = b_turned ? p->k : p->n;

	if (SIZE(m, 1) || SIZE(n, 1) || SIZE(k, 1) || SIZE(a_stride, a_cols) || SIZE(b_stride, b_cols) ||
	        SIZE(c_stride, p->n) || COMPUTE_DTYPE(ab_dtype) || COMPUTE_DTYPE(c_dtype))
		return ERR_RANGE;
	if (p->c_dtype != DTYPE_F32 && p->c_dtype != p->ab_dtype)
		return op_refuse(
		        f, "c_dtype %s needs ab_dtype %s", dtype_name(p->c_dtype), dtype_name(p->c_dtype));
	if (p->accumulate && !dev_is_none(p->bias))
		return op_refuse(f, "accumulate and bias exclude each other");
	READ(a, .dtype = p->ab_dtype, .rows = a_rows, .stride = p->a_stride, .cols = a_cols);
	READ(b, .dtype = p->ab_dtype, .rows = b_rows, .stride = p->b_stride, .cols = b_cols);
	READ(bias, .dtype = p->ab_dtype, .cols = p->n, .optional = 1);
	WRITE_OR_ADD(
	        c, p->accumulate, .dtype = p->c_dtype, .rows = p->m, .stride = p->c_stride, .cols = p->n);
	f->flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
	f->flops_dtype = p->ab_dtype;
	return 0;
}
