/* Products of FP8: rows to codes with scales of blocks, and the product of two such operands (device/op.h has
 * the rules for all ops). */
#ifndef FERRY_DEVICE_OP_CODED_H
#define FERRY_DEVICE_OP_CODED_H

#include "base/codes.h"
#include "base/dtype.h"
#include "device/addr.h"
#include "device/op_matmul.h"

#define OP_CODED_LIST(ROW)                                                                                   \
	ROW(ENCODE, encode, encode)                                                                          \
	ROW(CODED_MATMUL, coded_matmul, coded_matmul)

/* Blocks along a side whose first block has already `lead` elements before the side's first one. */
static inline int64_t coded_blocks(int64_t lead, int64_t count)
{
	return (lead + count + CODE_BLOCK - 1) / CODE_BLOCK;
}

/* codes[r,c] = the E4M3 code of src[r,c] / scale, scale that of its block (base/codes.h): block_rows rows by
 * CODE_BLOCK columns, `lead` of which are before the first column. scales F32 [ceil(rows / block_rows),
 * coded_blocks(lead, cols)]. Codes have no gaps. */
struct op_encode {
	dev_addr codes, scales, src;
	int64_t rows, cols, src_stride, block_rows, lead;
	enum dtype src_dtype;
};

/* c[m,n] (+)= a[m,k] * op(b)[k,n] (+ bias[n] on every row), of codes of E4M3. The terms of a block of k are
 * summed in fp32, the sum is multiplied by the fp32 product of the scales of a and b, and these are added in
 * fp32 in ascending order; c is rounded once. A term with a NaN code or scale is NaN.
 *
 * b is stored without gaps as op_matmul has it: [n,k] transposed, [k,n] normal; it has a scale for each
 * square of CODE_BLOCK, row by row. b_lead: rows of the first square that are before b's first row; less than
 * CODE_BLOCK. a's scales [m, coded_blocks(lead, k)] go with those of b along k: lead is b_lead with a normal
 * b, else 0. */
struct op_coded_matmul {
	dev_addr c, a, a_scales, b, b_scales, bias; /* bias optional, not together with accumulate */
	int64_t m, n, k, c_stride, b_lead;
	enum matmul_layout b_layout;
	enum dtype bias_dtype, c_dtype;
	int accumulate;
};

#endif
