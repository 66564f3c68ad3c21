/* Descriptions of ops that move, convert and add arrays: requirements and operands. */
#include "device/op_move.h"

#include "device/op_facts.h"

OP_MOVE_LIST(OP_DESCRIBED)

int op_describe_fill(struct op_facts *f, const struct op_fill *p)
{
	if (SIZE(bytes, 1))
		return ERR_RANGE;
	WRITE(dst, .dtype = DTYPE_U8, .cols = p->bytes);
	return 0;
}

int op_describe_copy(struct op_facts *f, const struct op_copy *p)
{
	if (SIZE(bytes, 1))
		return ERR_RANGE;
	READ(src, .dtype = DTYPE_U8, .cols = p->bytes);
	WRITE(dst, .dtype = DTYPE_U8, .cols = p->bytes);
	return 0;
}

int op_describe_cast(struct op_facts *f, const struct op_cast *p)
{
	if (SIZE(count, 1) || COMPUTE_DTYPE(src_dtype) || COMPUTE_DTYPE(dst_dtype))
		return ERR_RANGE;
	READ(src, .dtype = p->src_dtype, .cols = p->count);
	WRITE(dst, .dtype = p->dst_dtype, .cols = p->count);
	return 0;
}

int op_describe_join(struct op_facts *f, const struct op_join *p)
{
	if (SIZE(count, 1))
		return ERR_RANGE;
	READ(hi, .dtype = DTYPE_BF16, .cols = p->count);
	READ(lo, .dtype = DTYPE_I16, .cols = p->count);
	WRITE(dst, .dtype = DTYPE_F32, .cols = p->count);
	return 0;
}

int op_describe_expand(struct op_facts *f, const struct op_expand *p)
{
	int64_t scale_rows, scale_cols;
	int wide;

	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(block_rows, 1) || SIZE(block_cols, 1) ||
	        COMPUTE_DTYPE(dst_dtype))
		return ERR_RANGE;
	if ((unsigned)p->code >= CODE_COUNT || (unsigned)p->scale >= CODE_SCALE_COUNT)
		return err_set(ERR_RANGE, "expand: code %d, scale %d", (int)p->code, (int)p->scale);
	wide = code_bits(p->code) == 8;
	if (!wide && p->rows > 1 && p->cols % 2)
		return err_set(ERR_RANGE, "expand: rows of %lld codes of 4 bits", (long long)p->cols);
	scale_rows = (p->rows - 1) / p->block_rows + 1;
	scale_cols = (p->cols - 1) / p->block_cols + 1;
	READ(codes, .dtype = DTYPE_U8, .rows = p->rows, .cols = code_bytes(p->code, p->cols));
	READ(scales, .dtype = p->scale == CODE_SCALE_F32 ? DTYPE_F32 : DTYPE_U8, .rows = scale_rows,
	        .cols = scale_cols);
	if (p->scale == CODE_SCALE_NESTED)
		READ(outer, .dtype = DTYPE_F32, .cols = nested_outer_count(scale_rows * scale_cols));
	WRITE(dst, .dtype = p->dst_dtype, .rows = p->rows, .cols = p->cols);
	return 0;
}

int op_describe_add(struct op_facts *f, const struct op_add *p)
{
	int a, b;

	if (SIZE(count, 1) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	a = READ(a, .dtype = p->dtype, .cols = p->count);
	b = READ(b, .dtype = p->dtype, .cols = p->count);
	WRITE(dst, .dtype = p->dtype, .cols = p->count, .may_be = BIT(a) | BIT(b));
	return 0;
}

int op_describe_scale(struct op_facts *f, const struct op_scale *p)
{
	int src;

	if (SIZE(count, 1) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	src = READ(src, .dtype = p->dtype, .cols = p->count);
	READ(by, .dtype = p->dtype, .cols = 1, .optional = 1);
	WRITE(dst, .dtype = p->dtype, .cols = p->count, .may_be = BIT(src));
	return 0;
}

int op_describe_columns(struct op_facts *f, const struct op_columns *p)
{
	int is_same = p->spread <= 1 && p->fold <= 1 && p->dst_stride == p->src_stride &&
	              p->dst_dtype == p->src_dtype;
	int src;

	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(dst_stride, p->cols) || SIZE(src_stride, p->cols) ||
	        COMPUTE_DTYPE(src_dtype) || COMPUTE_DTYPE(dst_dtype) || RANGE_SIZE)
		return ERR_RANGE;
	if (p->spread < 0 || p->fold < 0 || (p->spread > 1 && (p->fold > 1 || p->rows % p->spread)))
		return op_refuse(f, "spread %lld and fold %lld do not fit the rows", (long long)p->spread,
		        (long long)p->fold);
	if (!dev_is_none(p->range.first) && (p->spread > 1 || p->fold > 1))
		return op_refuse(f, "range of dst does not go with spread %lld or fold %lld",
		        (long long)p->spread, (long long)p->fold);
	src = READ(src, .dtype = p->src_dtype,
	        .rows = p->spread > 1 ? p->rows / p->spread : size_times(p->rows, p->fold > 1 ? p->fold : 1),
	        .stride = p->src_stride, .cols = p->cols, RANGE_ROWS(p->rows));
	RANGE;
	WRITE_OR_ADD(dst, p->accumulate, .dtype = p->dst_dtype, .rows = p->rows, .stride = p->dst_stride,
	        .cols = p->cols, .may_be = is_same ? BIT(src) : 0, RANGE_ROWS(p->rows));
	return 0;
}

static int check_limit(const struct op_facts *f, double limit)
{
	return limit > 0 ? 0 : op_refuse(f, "limit is %g, must be above 0", limit);
}

int op_describe_clamp(struct op_facts *f, const struct op_clamp *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(y_stride, p->cols) || SIZE(x_stride, p->cols) ||
	        COMPUTE_DTYPE(dtype) || check_limit(f, p->limit))
		return ERR_RANGE;
	READ(x, .dtype = p->dtype, .rows = p->rows, .stride = p->x_stride, .cols = p->cols);
	WRITE(y, .dtype = p->dtype, .rows = p->rows, .stride = p->y_stride, .cols = p->cols);
	return 0;
}

int op_describe_clamp_grad(struct op_facts *f, const struct op_clamp_grad *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(dx_stride, p->cols) || SIZE(x_stride, p->cols) ||
	        COMPUTE_DTYPE(dtype) || check_limit(f, p->limit))
		return ERR_RANGE;
	READ(x, .dtype = p->dtype, .rows = p->rows, .stride = p->x_stride, .cols = p->cols);
	UPDATE(dx, .dtype = p->dtype, .rows = p->rows, .stride = p->dx_stride, .cols = p->cols);
	return 0;
}

int op_describe_colsum(struct op_facts *f, const struct op_colsum *p)
{
	if (SIZE(rows, 1) || SIZE(cols, 1) || SIZE(x_stride, p->cols) || COMPUTE_DTYPE(dtype))
		return ERR_RANGE;
	READ(x, .dtype = p->dtype, .rows = p->rows, .stride = p->x_stride, .cols = p->cols);
	UPDATE(sum, .dtype = DTYPE_F32, .cols = p->cols);
	return 0;
}
