/* The loop over the parts of a bf16 product, which matmul_avx512bf16.c, matmul_amx.c and matmul_bfmmla.c
 * share. The packed operands of a part fit in the caches. An element of c is a sum over k in parts of
 * `depth`, added to c in ascending order.
 */
#ifndef FERRY_HOST_CPU_MATMUL_PARTS_H
#define FERRY_HOST_CPU_MATMUL_PARTS_H

#include "base/size.h"
#include "host/cpu/matmul.h"

struct operand {
	const uint16_t *x;
	int64_t stride, count, depth; /* count: rows of op(a), columns of op(b) */
	int has_k_rows;               /* 1: a stored row belongs to one k; 0: to one of count */
};

/* Where the sums of a part go: to c, or to c + c with accumulate; with `rounded` that sum is not stored in c
 * but there, as bf16. */
struct sums {
	float *c;
	uint16_t *rounded; /* or NULL */
	int64_t c_stride, rounded_stride;
	int accumulate;
};

static inline struct sums sums_at(const struct sums *s, int64_t row, int64_t col)
{
	struct sums at = *s;

	at.c += row * s->c_stride + col;
	if (at.rounded)
		at.rounded += row * s->rounded_stride + col;
	return at;
}

/* Computes the rows of c that belong to `a`, over one part of k. */
typedef void matmul_part(const struct sums *to, const struct operand *a, const struct operand *b);

/* A part has at most `rows` rows of c. Parts are about equal; all but the last are multiples of `side`. */
static inline void matmul_by_parts(
        const struct matmul_product *p, matmul_part *part, int64_t depth, int64_t rows, int64_t side)
{
	struct operand a = {.stride = p->a_stride, .has_k_rows = p->a_layout == MATMUL_TRANSPOSED},
	               b = {.stride = p->b_stride, .count = p->n, .has_k_rows = p->b_layout == MATMUL_NORMAL};
	int64_t parts = (p->m + rows - 1) / rows;

	rows = round_up((p->m + parts - 1) / parts, side);
	for (int64_t at = 0; at < p->k; at += depth) {
		struct sums to = {.c = p->c,
		        .rounded = at + depth >= p->k ? p->rounded : NULL,
		        .c_stride = p->c_stride,
		        .rounded_stride = p->rounded_stride,
		        .accumulate = p->accumulate || at > 0};

		a.depth = b.depth = min_i64(depth, p->k - at);
		b.x = p->b + at * (b.has_k_rows ? p->b_stride : 1);
		for (int64_t i = 0; i < p->m; i += rows) {
			struct sums here = sums_at(&to, i, 0);

			a.x = p->a + at * (a.has_k_rows ? p->a_stride : 1) +
			      i * (a.has_k_rows ? 1 : p->a_stride);
			a.count = min_i64(rows, p->m - i);
			part(&here, &a, &b);
		}
	}
}

#endif
