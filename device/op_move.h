/* Ops that move, convert and add arrays, and sums of columns (device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_MOVE_H
#define FERRY_DEVICE_OP_MOVE_H

#include "base/codes.h"
#include "base/dtype.h"
#include "device/addr.h"
#include "device/row_range.h"

#define OP_MOVE_LIST(ROW)                                                                                    \
	ROW(FILL, fill, fill)                                                                                \
	ROW(COPY, copy, copy)                                                                                \
	ROW(CAST, cast, cast)                                                                                \
	ROW(JOIN, join, join)                                                                                \
	ROW(EXPAND, expand, expand)                                                                          \
	ROW(ADD, add, add)                                                                                   \
	ROW(SCALE, scale, scale)                                                                             \
	ROW(COLUMNS, columns, columns)                                                                       \
	ROW(CLAMP, clamp, clamp)                                                                             \
	ROW(CLAMP_GRAD, clamp_grad, clamp_grad)                                                              \
	ROW(COLSUM, colsum, colsum)

/* dst[0..bytes) = value */
struct op_fill {
	dev_addr dst;
	int64_t bytes;
	uint8_t value;
};

/* dst = src, within the device */
struct op_copy {
	dev_addr dst, src;
	int64_t bytes;
};

/* dst[i] = (dst dtype) src[i]; F32 and BF16, rounding to nearest even */
struct op_cast {
	dev_addr dst, src;
	int64_t count;
	enum dtype dst_dtype, src_dtype;
};

/* dst[i] (F32) = the fp32 with the upper half hi[i] and the lower half lo[i] (base/num.h) */
struct op_join {
	dev_addr dst, hi, lo;
	int64_t count;
};

/* dst[r,c] (dst dtype) = the value of codes[r,c] * scale, an fp32 product rounded once (base/codes.h). Blocks
 * of block_rows x block_cols elements share a scale: scales [ceil(rows / block_rows), ceil(cols /
 * block_cols)]. Codes of 4 bits: cols are even, or there is one row. `outer` (F32) belongs to NESTED
 * scales. */
struct op_expand {
	dev_addr dst, codes, scales, outer;
	int64_t rows, cols, block_rows, block_cols;
	enum code code;
	enum code_scale scale;
	enum dtype dst_dtype;
};

/* dst = a + b, in `dtype`; dst may be a or b */
struct op_add {
	dev_addr dst, a, b;
	int64_t count;
	enum dtype dtype;
};

/* dst = y = factor * src or, with cap > 0, cap * tanh(y / cap), in `dtype`; dst may be src. With `by`, one
 * element in `dtype`, the product is also multiplied by it. */
struct op_scale {
	dev_addr dst, src, by;
	int64_t count;
	double factor, cap;
	enum dtype dtype;
};

/* dst[r,c] (dst dtype) = or, with accumulate, += factor * src[r,c]: some columns of wider rows. F32 and BF16,
 * rounding to nearest even; strides in elements. With spread s > 1 row r / s of src goes to row r, so each
 * serves s rows; with fold f > 1 row r gets the fp32 sum of rows r f to r f + f - 1. dst may be src of the
 * same dtype and stride. */
struct op_columns {
	dev_addr dst, src;
	int64_t rows, cols, dst_stride, src_stride;
	enum dtype dst_dtype, src_dtype;
	int accumulate;
	int64_t spread, fold;   /* 0 counts as 1; one of them is 1 */
	double factor;          /* 0 counts as 1 */
	struct row_range range; /* of dst; not with spread or fold */
};

/* y[r,c] = x[r,c], but at most `limit` and at least -limit. Backward: dx[r,c] becomes 0 where x is beyond the
 * limit. Strides in elements. NaN stays. */
struct op_clamp {
	dev_addr y, x;
	int64_t rows, cols, y_stride, x_stride;
	double limit;
	enum dtype dtype;
};
struct op_clamp_grad {
	dev_addr dx, x;
	int64_t rows, cols, dx_stride, x_stride;
	double limit;
	enum dtype dtype;
};

/* sum[c] (F32) += sum over rows of x[r,c] */
struct op_colsum {
	dev_addr sum, x;
	int64_t rows, cols, x_stride;
	enum dtype dtype;
};

#endif
