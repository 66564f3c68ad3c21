/* RMSNorm and LayerNorm, forward and backward (device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_NORM_H
#define FERRY_DEVICE_OP_NORM_H

#include "base/dtype.h"
#include "device/addr.h"

#define OP_NORM_LIST(ROW)                                                                                    \
	ROW(RMSNORM, rmsnorm, norm)                                                                          \
	ROW(RMSNORM_GRAD, rmsnorm_grad, norm_grad)                                                           \
	ROW(LAYERNORM, layernorm, norm)                                                                      \
	ROW(LAYERNORM_GRAD, layernorm_grad, norm_grad)

/* Rows of `cols` elements: row r, group g (0 <= g < groups) starts at base + r * stride + g * group_stride.
 * groups > 1 normalises each head of a fused projection on its own. stat index is r * groups + g.
 *
 * rmsnorm (Zhang and Sennrich 2019): y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + epsilon). layernorm
 * (Ba et al. 2016): y = (x - mean) * rstd * weight + bias, rstd from the biased variance. weight_offset is
 * added to weight (Gemma: 1 + w). Backward writes dx (adds to it with accumulate_dx) and adds to dweight and
 * dbias. weight and bias are in `dtype`; stats, dweight and dbias are F32. dy and dx have the strides of y
 * and x. dx may be dy when the strides agree and accumulate_dx is 0. scratch of the grads: F32
 * [norm_scratch_count(rows, groups, cols)]. mean, bias, dbias: layernorm only; bias and dbias are optional
 * there.
 */
struct op_norm {
	dev_addr y, x, weight, bias, rstd, mean;
	int64_t rows, groups, cols, x_stride, y_stride, x_group_stride, y_group_stride;
	double epsilon, weight_offset;
	enum dtype dtype;
};
struct op_norm_grad {
	dev_addr dx, dweight, dbias, dy, x, weight, rstd, mean, scratch;
	int64_t rows, groups, cols, x_stride, y_stride, x_group_stride, y_group_stride;
	double weight_offset;
	enum dtype dtype;
	int accumulate_dx;
};
int64_t norm_scratch_count(int64_t rows, int64_t groups, int64_t cols);

#endif
