/* Descriptions of ops of FP8: requirements, operands and arithmetic. */
#include "device/op_coded.h"

#include "device/op_facts.h"

OP_CODED_LIST(OP_DESCRIBED)

static int lead_check(const struct op_facts *f, const char *name, int64_t lead)
{
	return lead < CODE_BLOCK ? 0 : op_refuse(f, "%s is not below %d", name, CODE_BLOCK);
}

int op_describe_encode(struct op_facts *f, const struct op_encode *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(src_stride, p->cols) || SIZE(block_rows, 1) ||
	        SIZE(lead, 0) || COMPUTE_DTYPE(src_dtype))
		return ERR_RANGE;
	if (lead_check(f, "lead", p->lead))
		return ERR_RANGE;
	READ(src, .dtype = p->src_dtype, .rows = p->rows, .stride = p->src_stride, .cols = p->cols);
	WRITE(codes, .dtype = DTYPE_U8, .rows = p->rows, .cols = p->cols);
	WRITE(scales, .dtype = DTYPE_F32, .rows = (p->rows - 1) / p->block_rows + 1,
	        .cols = coded_blocks(p->lead, p->cols));
	return 0;
}

int op_describe_coded_matmul(struct op_facts *f, const struct op_coded_matmul *p)
{
	int turned = p->b_layout == MATMUL_TRANSPOSED;
	int64_t b_rows = turned ? p->n : p->k, b_cols = turned ? p->k : p->n;

	if (SIZE(m, 1) || SIZE(n, 1) || SIZE(k, 1) || SIZE(c_stride, p->n) || SIZE(b_lead, 0) ||
	        COMPUTE_DTYPE(c_dtype) || COMPUTE_DTYPE(bias_dtype))
		return ERR_RANGE;
	if (lead_check(f, "b_lead", p->b_lead))
		return ERR_RANGE;
	if (p->accumulate && !dev_is_none(p->bias))
		return op_refuse(f, "accumulate and bias exclude each other");
	READ(a, .dtype = DTYPE_U8, .rows = p->m, .cols = p->k);
	READ(a_scales, .dtype = DTYPE_F32, .rows = p->m, .cols = coded_blocks(turned ? 0 : p->b_lead, p->k));
	READ(b, .dtype = DTYPE_U8, .rows = b_rows, .cols = b_cols);
	READ(b_scales, .dtype = DTYPE_F32, .rows = coded_blocks(p->b_lead, b_rows),
	        .cols = coded_blocks(0, b_cols));
	READ(bias, .dtype = p->bias_dtype, .cols = p->n, .optional = 1);
	WRITE_OR_ADD(
	        c, p->accumulate, .dtype = p->c_dtype, .rows = p->m, .stride = p->c_stride, .cols = p->n);
	f->flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
	f->flops_dtype = DTYPE_BF16; /* what it is multiplied as, where nothing faster is known */
	return 0;
}
