/* One product of matrices on the device, against sums in double. */
#ifndef FERRY_TESTS_PRODUCT_CASE_H
#define FERRY_TESTS_PRODUCT_CASE_H

#include "tests/ops_check.h"

struct product {
	int64_t m, n, k;
	enum matmul_layout a_layout, b_layout;
	enum dtype ab_dtype, c_dtype;
	int accumulate, bias, gaps;
};

/* All elements in double. */
static inline double *doubles(const struct tensor *t)
{
	double *x = mem_alloc((size_t)t->count, sizeof *x);

	assert_non_null(x);
	for (int64_t i = 0; i < t->count; i++)
		x[i] = tensor_get(t, i);
	return x;
}

static inline int64_t element_at(enum matmul_layout layout, int64_t row, int64_t col, int64_t stride)
{
	return layout == MATMUL_NORMAL ? row * stride + col : col * stride + row;
}

/* One product against sums in double. Each of the k additions of fp32 may be off by half an ulp of what has
 * been added so far, in any order: (k + 2) eps sum |a b|; rows are sampled when there are many. */
static inline void product_try(const struct product *p, uint64_t seed)
{
	struct ops_case c;
	int64_t a_rows = p->a_layout == MATMUL_NORMAL ? p->m : p->k,
	        a_cols = p->a_layout == MATMUL_NORMAL ? p->k : p->m;
	int64_t b_rows = p->b_layout == MATMUL_NORMAL ? p->k : p->n,
	        b_cols = p->b_layout == MATMUL_NORMAL ? p->n : p->k;
	int64_t a_stride, b_stride, c_stride, step;
	double *x, *y;
	struct tensor *a, *b, *out, *bias;
	struct op op = {.kind = OP_MATMUL};

	case_begin(&c, "matmul", seed);
	a_stride = a_cols + (p->gaps ? case_int(&c, 0, 9) : 0);
	b_stride = b_cols + (p->gaps ? case_int(&c, 0, 9) : 0);
	c_stride = p->n + (p->gaps ? case_int(&c, 0, 9) : 0);
	a = case_tensor(&c, (a_rows - 1) * a_stride + a_cols, p->ab_dtype, 1);
	b = case_tensor(&c, (b_rows - 1) * b_stride + b_cols, p->ab_dtype, 1);
	out = case_tensor(&c, (p->m - 1) * c_stride + p->n, p->c_dtype, 1);
	bias = p->bias ? case_tensor(&c, p->n, p->ab_dtype, 1) : NULL;
	op.matmul = (struct op_matmul){.c = tensor_addr(out),
	        .a = tensor_addr(a),
	        .b = tensor_addr(b),
	        .bias = tensor_addr(bias),
	        .m = p->m,
	        .n = p->n,
	        .k = p->k,
	        .a_stride = a_stride,
	        .b_stride = b_stride,
	        .c_stride = c_stride,
	        .a_layout = p->a_layout,
	        .b_layout = p->b_layout,
	        .ab_dtype = p->ab_dtype,
	        .c_dtype = p->c_dtype,
	        .accumulate = p->accumulate};
	if (!p->accumulate) /* c must not be read: NaN would stay */
		for (int64_t i = 0; i < p->m; i++)
			for (int64_t j = 0; j < p->n; j++)
				tensor_set(out, i * c_stride + j, NAN);
	case_run(&c, &op);
	x = doubles(a);
	y = doubles(b);
	step = 1 + p->m * p->n * p->k / 200000;
	for (int64_t at = 0; at < p->m * p->n; at++) {
		int64_t i = at / p->n, j = at % p->n;
		double sum = 0, size = 0;

		if (at % step && at != p->m * p->n - 1) {
			out->written[i * c_stride + j] = 1;
			continue;
		}
		for (int64_t l = 0; l < p->k; l++) {
			double term = x[element_at(p->a_layout, i, l, a_stride)] *
			              y[element_at(p->b_layout, l, j, b_stride)];
			sum += term;
			size += fabs(term);
		}
		if (p->accumulate)
			sum += tensor_was(out, i * c_stride + j),
			        size += fabs(tensor_was(out, i * c_stride + j));
		if (bias)
			sum += tensor_get(bias, j), size += fabs(tensor_get(bias, j));
		case_check(&c, out, i * c_stride + j, sum, (double)(p->k + 2) * EPS_F32 * size, "c");
	}
	mem_free(x);
	mem_free(y);
	case_end(&c);
}

#endif
