/* links: host_cpu */
/* also: tsan cuda */
/* Matrix products against fp64: layouts, strides, bias, accumulation. */
#include "tests/ops_check.h"

#ifndef FERRY_TEST_CUDA
#include "host/cpu/matmul_onednn.h"
#endif

struct product {
	int64_t m, n, k;
	enum matmul_layout a_layout, b_layout;
	enum dtype ab_dtype, c_dtype;
	int accumulate, bias, gaps;
};

/* All elements in double. */
static double *doubles(const struct tensor *t)
{
	double *x = mem_alloc((size_t)t->count, sizeof *x);

	assert_non_null(x);
	for (int64_t i = 0; i < t->count; i++)
		x[i] = tensor_get(t, i);
	return x;
}

static int64_t element_at(enum matmul_layout layout, int64_t row, int64_t col, int64_t stride)
{
	return layout == MATMUL_NORMAL ? row * stride + col : col * stride + row;
}

/* One product against sums in double. Each of the k additions of fp32 may be off by half an ulp of what has
 * been added so far, in any order: (k + 2) eps sum |a b|; rows are sampled when there are many. */
static void product_try(const struct product *p, uint64_t seed)
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

static void product_random(struct product *p, uint64_t seed, int64_t high)
{
	struct ops_case c;

	case_begin(&c, "matmul", seed + 1000000);
	*p = (struct product){.m = case_size(&c, high), .n = case_size(&c, high), .k = case_size(&c, high)};
	p->a_layout = case_int(&c, 0, 1) ? MATMUL_TRANSPOSED : MATMUL_NORMAL;
	p->b_layout = case_int(&c, 0, 1) ? MATMUL_TRANSPOSED : MATMUL_NORMAL;
	p->ab_dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	p->c_dtype = p->ab_dtype == DTYPE_BF16 && case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	p->accumulate = p->c_dtype == DTYPE_F32 && case_int(&c, 0, 1);
	p->bias = !p->accumulate && case_int(&c, 0, 1);
	p->gaps = (int)case_int(&c, 0, 1);
}

static void test_random_shapes(void **state)
{
	struct product p;

	(void)state;
	for (uint64_t seed = 0; seed < case_count(160); seed++) {
		product_random(&p, seed, seed % 8 ? 40 : 200);
		product_try(&p, seed);
	}
}

/* Shapes that are cut: by rows, by columns, along k, with borders in the middle of a tile. */
static void test_cut_shapes(void **state)
{
	static const int64_t shapes[][3] = {{300, 700, 30}, {513, 97, 65}, {40, 1100, 520}, {33, 65, 4500},
	        {96, 48, 9001}, {1, 2000, 300}, {2000, 1, 300}, {1, 1, 5000}, {69, 24, 63}, {129, 1, 63}};
	struct product p;

	(void)state;
	for (uint64_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (uint64_t variant = 0; variant < 4; variant++) {
			product_random(&p, 5000 + 4 * i + variant, 8);
			p.m = shapes[i][0];
			p.n = shapes[i][1];
			p.k = shapes[i][2];
			p.ab_dtype = p.c_dtype == DTYPE_BF16 || variant & 1 ? DTYPE_BF16 : DTYPE_F32;
			product_try(&p, i);
		}
}

#ifndef FERRY_TEST_CUDA
/* The same through oneDNN, whatever this CPU would have chosen. It refuses bf16 where the CPU has no AVX-512;
 * then the products are widened, and this only shows that the refusal is harmless. */
static void test_onednn(void **state)
{
	static const int64_t shapes[][3] = {{300, 700, 30}, {40, 1100, 520}, {33, 65, 4500}, {1, 1, 5000}};
	struct product p;

	(void)state;
	setenv("FERRY_MATMUL", "onednn", 1);
	for (int bf16 = 0; bf16 < 2; bf16++) {
		struct op_matmul op = {
		        .a_stride = 8, .b_stride = 8, .ab_dtype = bf16 ? DTYPE_BF16 : DTYPE_F32};
		struct onednn_product *product = onednn_product_open(&op, 8, 8, 8, 8, 0);

		if (!product)
			print_message(
			        "SKIPPED oneDNN %s: this CPU or build lacks it\n", dtype_name(op.ab_dtype));
		onednn_product_close(product);
	}
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		product_random(&p, seed, seed % 8 ? 40 : 200);
		product_try(&p, seed);
	}
	for (uint64_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		product_random(&p, 7000 + i, 8);
		p.m = shapes[i][0];
		p.n = shapes[i][1];
		p.k = shapes[i][2];
		product_try(&p, i);
	}
	unsetenv("FERRY_MATMUL");
}
#endif

/* NaN and infinity in an operand reach c. */
static void test_nonfinite(void **state)
{
	for (int bf16 = 0; bf16 < 2; bf16++) {
		enum dtype dtype = bf16 ? DTYPE_BF16 : DTYPE_F32;
		struct ops_case c;
		struct tensor *a, *b, *out;
		struct op op = {.kind = OP_MATMUL};

		(void)state;
		case_begin(&c, "nonfinite", 3);
		a = case_tensor(&c, 64, dtype, 1);
		b = case_tensor(&c, 64, dtype, 1);
		out = case_tensor(&c, 64, DTYPE_F32, 1);
		tensor_set(a, 8 * 2 + 3, NAN);
		tensor_set(a, 8 * 5 + 1, INFINITY);
		op.matmul = (struct op_matmul){.c = tensor_addr(out),
		        .a = tensor_addr(a),
		        .b = tensor_addr(b),
		        .m = 8,
		        .n = 8,
		        .k = 8,
		        .a_stride = 8,
		        .b_stride = 8,
		        .c_stride = 8,
		        .ab_dtype = dtype};
		case_run(&c, &op);
		for (int64_t j = 0; j < 8; j++) {
			assert_true(isnan(tensor_get(out, 8 * 2 + j)));
			assert_false(isfinite(tensor_get(out, 8 * 5 + j)));
			assert_true(isfinite(tensor_get(out, 8 * 4 + j)));
		}
		case_forget(out);
		case_end(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_random_shapes),
	        cmocka_unit_test(test_cut_shapes),
#ifndef FERRY_TEST_CUDA
	        cmocka_unit_test(test_onednn),
#endif
	        cmocka_unit_test(test_nonfinite),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
