/* Ops of weights with a magnitude for each row (DoRA; device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_MAGNITUDE_H
#define FERRY_DEVICE_OP_MAGNITUDE_H

#include "base/dtype.h"
#include "device/addr.h"

#define OP_MAGNITUDE_LIST(ROW)                                                                               \
	ROW(ROW_NORMS, row_norms, row_norms)                                                                 \
	ROW(MAGNITUDE, magnitude, magnitude)                                                                 \
	ROW(MAGNITUDE_GRAD, magnitude_grad, magnitude_grad)

/* norm[j] (F32) = |W[j] + scale B[j] A|, rounded to dtype. W: [out, in], or with in_out [in, out]; A: [rank,
 * in]; B: [out, rank]. */
struct op_row_norms {
	dev_addr norm, w, a, b;
	int64_t out, in, rank, w_stride;
	double scale;
	int in_out;
	enum dtype dtype;
};

/* dst (+)= (magnitude[c] / norm[c] - minus) src + bias[c]. magnitude and bias (optional) in dtype; norm:
 * F32. */
struct op_magnitude {
	dev_addr dst, src, magnitude, norm, bias;
	int64_t rows, cols, dst_stride, src_stride;
	double minus;
	int accumulate;
	enum dtype dtype, dst_dtype, src_dtype;
};

/* grad[c] (F32) += sum over rows of dy[r,c] y[r,c] / norm[c] */
struct op_magnitude_grad {
	dev_addr grad, dy, y, norm;
	int64_t rows, cols, dy_stride, y_stride;
	enum dtype dtype;
};

#endif
