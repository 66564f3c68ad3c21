/* The product of two matrices (device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_MATMUL_H
#define FERRY_DEVICE_OP_MATMUL_H

#include "base/dtype.h"
#include "device/addr.h"

#define OP_MATMUL_LIST(ROW) ROW(MATMUL, matmul, matmul)

/* c[m,n] (+)= op(a)[m,k] * op(b)[k,n] (+ bias[n] on every row).
 * MATMUL_NORMAL: a is [m,k] / b is [k,n]; MATMUL_TRANSPOSED: a is stored [k,m] / b is stored [n,k].
 * accumulate 1: c is read and added to, in fp32, and rounded once. A linear layer of torch (weight [out,in])
 * is a = x [tokens,in] normal, b = weight transposed; its weight gradient is a = dy transposed, b = x normal,
 * accumulate, c F32. */
enum matmul_layout { MATMUL_NORMAL, MATMUL_TRANSPOSED };
struct op_matmul {
	dev_addr c, a, b, bias; /* bias in ab_dtype, optional, not together with accumulate */
	int64_t m, n, k;
	int64_t a_stride, b_stride, c_stride; /* of a stored row */
	enum matmul_layout a_layout, b_layout;
	enum dtype ab_dtype, c_dtype;
	int accumulate;
};

#endif
