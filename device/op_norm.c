/* Descriptions of RMSNorm and LayerNorm: requirements and operands. */
#include "device/op_norm.h"

#include "device/op_facts.h"

OP_NORM_LIST(OP_DESCRIBED)

/* Partial sums of dweight and dbias, one row of each per block of rows. A block has 8 rows, or more if that
 * would make more than 128 blocks (about one for each multiprocessor of a large GPU). */
int64_t norm_scratch_count(int64_t rows, int64_t groups, int64_t cols)
{
	int64_t blocks, count;

	if (__builtin_mul_overflow(rows, groups, &blocks))
		return INT64_MAX;
	blocks = (blocks - 1) / 8 + 1;
	blocks = blocks > 128 ? 128 : blocks;
	return __builtin_mul_overflow(2 * blocks, cols, &count) ? INT64_MAX : count;
}

/* Sizes that forward and backward share. */
#define NORM_SIZES                                                                                           \
	(SIZE(rows, 1) || SIZE(groups, 1) || SIZE(cols, 1) ||                                                \
	        SIZE(x_group_stride, p->groups > 1 ? p->cols : 0) ||                                         \
	        SIZE(y_group_stride, p->groups > 1 ? p->cols : 0) ||                                         \
	        SIZE(x_stride, size_of_row(p->groups, p->x_group_stride, p->cols)) ||                        \
	        SIZE(y_stride, size_of_row(p->groups, p->y_group_stride, p->cols)) || COMPUTE_DTYPE(dtype))

/* Operands in the layout of x, in the layout of y, and with one number for each row and group. */
#define LIKE_X                                                                                               \
	.dtype = p->dtype, .rows = p->rows, .stride = p->x_stride, .groups = p->groups,                      \
	.group_stride = p->x_group_stride, .cols = p->cols
#define LIKE_Y                                                                                               \
	.dtype = p->dtype, .rows = p->rows, .stride = p->y_stride, .groups = p->groups,                      \
	.group_stride = p->y_group_stride, .cols = p->cols
#define STAT .dtype = DTYPE_F32, .rows = p->rows, .cols = p->groups

int op_describe_rmsnorm(struct op_facts *f, const struct op_norm *p)
{
	if (NORM_SIZES)
		return ERR_RANGE;
	READ(x, LIKE_X);
	READ(weight, .dtype = p->dtype, .cols = p->cols);
	WRITE(y, LIKE_Y);
	WRITE(rstd, STAT);
	return 0;
}

int op_describe_layernorm(struct op_facts *f, const struct op_norm *p)
{
	if (op_describe_rmsnorm(f, p))
		return ERR_RANGE;
	READ(bias, .dtype = p->dtype, .cols = p->cols, .optional = 1);
	WRITE(mean, STAT);
	return 0;
}

int op_describe_rmsnorm_grad(struct op_facts *f, const struct op_norm_grad *p)
{
	int dy, same_place = !p->accumulate_dx && p->x_stride == p->y_stride &&
	                     p->x_group_stride == p->y_group_stride;

	if (NORM_SIZES)
		return ERR_RANGE;
	dy = READ(dy, LIKE_Y);
	READ(x, LIKE_X);
	READ(weight, .dtype = p->dtype, .cols = p->cols);
	READ(rstd, STAT);
	WRITE_OR_ADD(dx, p->accumulate_dx, LIKE_X, .may_be = same_place ? BIT(dy) : 0);
	UPDATE(dweight, .dtype = DTYPE_F32, .cols = p->cols);
	WRITE(scratch, .dtype = DTYPE_F32, .cols = norm_scratch_count(p->rows, p->groups, p->cols));
	return 0;
}

int op_describe_layernorm_grad(struct op_facts *f, const struct op_norm_grad *p)
{
	if (op_describe_rmsnorm_grad(f, p))
		return ERR_RANGE;
	READ(mean, STAT);
	UPDATE(dbias, .dtype = DTYPE_F32, .cols = p->cols, .optional = 1);
	return 0;
}
