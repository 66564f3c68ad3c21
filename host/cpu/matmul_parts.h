/* The loop over the parts of a bf16 product, which matmul_amx.c and matmul_bfmmla.c share. The packed
 * operands of a part fit in the caches. An element of c is a sum over k in parts of `depth`, added to c in
 * ascending order.
 */
#ifndef FERRY_HOST_CPU_MATMUL_PARTS_H
#define FERRY_HOST_CPU_MATMUL_PARTS_H

#include "base/size.h"
#include "device/op_matmul.h"

struct operand {
	const uint16_t *x;
	int64_t stride, count, depth; /* count: rows of op(a), columns of op(b) */
	int has_k_rows;               /* 1: a stored row belongs to one k; 0: to one of count */
};

/* Computes the rows of c that belong to `a`, over one part of k. accumulate: adds the sums to c. */
typedef void matmul_part(
        float *c, int64_t c_stride, const struct operand *a, const struct operand *b, int accumulate);

/* c[m,n] = op(a) * op(b), or added to c. A part has at most `rows` rows of c. Parts are about equal; all but
 * the last are multiples of `side`. */
static inline void matmul_by_parts(float *c, const uint16_t *a, const uint16_t *b, int64_t m, int64_t n,
        int64_t k, int64_t c_stride, int64_t a_stride, int64_t b_stride, enum matmul_layout a_layout,
        enum matmul_layout b_layout, int accumulate, matmul_part *part, int64_t depth, int64_t rows,
        int64_t side)
{
	struct operand left = {.stride = a_stride, .has_k_rows = a_layout == MATMUL_TRANSPOSED},
	               right = {.stride = b_stride, .count = n, .has_k_rows = b_layout == MATMUL_NORMAL};
	int64_t parts = (m + rows - 1) / rows;

	rows = round_up((m + parts - 1) / parts, side);
	for (int64_t at = 0; at < k; at += depth) {
		left.depth = right.depth = min_i64(depth, k - at);
		right.x = b + at * (right.has_k_rows ? b_stride : 1);
		for (int64_t i = 0; i < m; i += rows) {
			left.x = a + at * (left.has_k_rows ? a_stride : 1) +
			         i * (left.has_k_rows ? 1 : a_stride);
			left.count = min_i64(rows, m - i);
			part(c + i * c_stride, c_stride, &left, &right, accumulate || at > 0);
		}
	}
}

#endif
