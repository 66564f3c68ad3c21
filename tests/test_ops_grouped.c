/* links: host_cpu */
/* also: tsan cuda */
/* Products of rows with the matrices of their experts and the activation of gpt-oss, against fp64 and finite
 * differences. */
#include "tests/ops_check.h"

enum { EXPERTS_MAX = 40 };

/* Experts [begin, begin + experts) of `all` take part; first[e] is the first row of expert e. */
struct grouped_case {
	int64_t rows, all, begin, experts, m, n, k, first[EXPERTS_MAX + 1];
	enum dtype dtype, c_dtype;
	int accumulate, is_even;
	struct tensor *starts, *a, *b, *c, *bias;
};

/* Some experts have no rows, some have few, some have many. In half of the cases all rows are multiples of 16
 * bytes, for kernels that need it. */
static void experts_draw(struct ops_case *c, struct grouped_case *v)
{
	int64_t at = 0;

	v->is_even = (int)case_int(c, 0, 1);
	if (v->is_even)
		c->phase = 0;
	v->all = case_int(c, 0, 4) ? case_int(c, 1, EXPERTS_MAX) : 1;
	v->begin = case_int(c, 0, 1) ? 0 : case_int(c, 0, v->all - 1);
	v->experts = v->begin ? case_int(c, 1, v->all - v->begin) : v->all;
	for (int64_t e = 0; e < v->all; e++) {
		v->first[e] = at;
		at += case_int(c, 0, 2) ? case_int(c, 0, case_int(c, 0, 4) ? 6 : 200) : 0;
	}
	v->first[v->all] = v->rows = at ? at : 1;
	v->starts = case_tensor(c, v->all + 1, DTYPE_I32, 1);
	for (int64_t e = 0; e <= v->all; e++)
		tensor_set(v->starts, e, (double)v->first[e]);
	v->dtype = case_int(c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	v->c_dtype = case_int(c, 0, 1) ? DTYPE_F32 : v->dtype;
	v->accumulate = (int)case_int(c, 0, 1);
}

static dev_addr starts_addr(const struct grouped_case *v)
{
	return dev_at(tensor_addr(v->starts), 4 * v->begin);
}

static int64_t side_draw(struct ops_case *c, const struct grouped_case *v)
{
	return v->is_even ? 8 * case_int(c, 1, 24) : case_size(c, 200);
}

static void product_bound(double size, double *bound)
{
	*bound = 40 * EPS_F32 * size;
}

static void rows_check(struct ops_case *c, const struct grouped_case *v, enum matmul_layout layout)
{
	for (int64_t e = 0; e < v->experts; e++)
		for (int64_t r = v->first[v->begin + e]; r < v->first[v->begin + e + 1]; r++)
			for (int64_t j = 0; j < v->n; j++) {
				double sum = v->accumulate ? tensor_was(v->c, r * v->n + j) : 0, size, bound;

				sum += v->bias ? tensor_get(v->bias, e * v->n + j) : 0;
				size = fabs(sum);
				for (int64_t l = 0; l < v->k; l++) {
					int64_t at =
					        layout == MATMUL_TRANSPOSED ? j * v->k + l : l * v->n + j;
					double term = tensor_get(v->a, r * v->k + l) *
					              tensor_get(v->b, e * v->n * v->k + at);

					sum += term;
					size += fabs(term);
				}
				product_bound(size, &bound);
				case_check(c, v->c, r * v->n + j, sum, bound, "c");
			}
}

static void test_rows(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct grouped_case v;
		struct op op = {.kind = OP_GROUPED};
		enum matmul_layout layout;

		case_begin(&c, "grouped rows", seed);
		experts_draw(&c, &v);
		v.n = side_draw(&c, &v);
		v.k = side_draw(&c, &v);
		layout = case_int(&c, 0, 1) ? MATMUL_TRANSPOSED : MATMUL_NORMAL;
		v.a = case_tensor(&c, v.rows * v.k, v.dtype, 1);
		v.b = case_tensor(&c, v.experts * v.n * v.k, v.dtype, 1);
		v.c = case_tensor(&c, v.rows * v.n, v.c_dtype, 1);
		v.bias = !v.accumulate && case_int(&c, 0, 1) ? case_tensor(&c, v.experts * v.n, v.dtype, 1)
		                                             : NULL;
		op.grouped = (struct op_grouped){.c = tensor_addr(v.c),
		        .a = tensor_addr(v.a),
		        .b = tensor_addr(v.b),
		        .bias = tensor_addr(v.bias),
		        .first = starts_addr(&v),
		        .rows = v.rows,
		        .experts = v.experts,
		        .n = v.n,
		        .k = v.k,
		        .of = GROUPED_ROWS,
		        .b_layout = layout,
		        .ab_dtype = v.dtype,
		        .c_dtype = v.c_dtype,
		        .accumulate = v.accumulate};
		case_run(&c, &op);
		rows_check(&c, &v, layout);
		case_end(&c);
	}
}

static void weights_check(struct ops_case *c, const struct grouped_case *v)
{
	for (int64_t e = 0; e < v->experts; e++)
		for (int64_t i = 0; i < v->m; i++)
			for (int64_t j = 0; j < v->n; j++) {
				int64_t at = (e * v->m + i) * v->n + j;
				double sum = v->accumulate ? tensor_was(v->c, at) : 0, size = fabs(sum),
				       bound;

				for (int64_t r = v->first[v->begin + e]; r < v->first[v->begin + e + 1];
				        r++) {
					double term = tensor_get(v->a, r * v->m + i) *
					              tensor_get(v->b, r * v->n + j);

					sum += term;
					size += fabs(term);
				}
				product_bound(size, &bound);
				case_check(c, v->c, at, sum, bound, "c");
			}
}

static void test_weights(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct grouped_case v;
		struct op op = {.kind = OP_GROUPED};

		case_begin(&c, "grouped weights", seed);
		experts_draw(&c, &v);
		v.m = side_draw(&c, &v);
		v.n = side_draw(&c, &v);
		v.a = case_tensor(&c, v.rows * v.m, v.dtype, 1);
		v.b = case_tensor(&c, v.rows * v.n, v.dtype, 1);
		v.c = case_tensor(&c, v.experts * v.m * v.n, v.c_dtype, 1);
		op.grouped = (struct op_grouped){.c = tensor_addr(v.c),
		        .a = tensor_addr(v.a),
		        .b = tensor_addr(v.b),
		        .first = starts_addr(&v),
		        .rows = v.rows,
		        .experts = v.experts,
		        .m = v.m,
		        .n = v.n,
		        .of = GROUPED_WEIGHTS,
		        .ab_dtype = v.dtype,
		        .c_dtype = v.c_dtype,
		        .accumulate = v.accumulate};
		case_run(&c, &op);
		weights_check(&c, &v);
		case_end(&c);
	}
}

static void test_colsum(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(60); seed++) {
		struct ops_case c;
		struct grouped_case v;
		struct op op = {.kind = OP_GROUPED_COLSUM};

		case_begin(&c, "grouped_colsum", seed);
		experts_draw(&c, &v);
		v.n = case_size(&c, 600);
		v.a = case_tensor(&c, v.rows * v.n, v.dtype, 1);
		v.c = case_tensor(&c, v.experts * v.n, DTYPE_F32, 1);
		op.grouped_colsum = (struct op_grouped_colsum){
		        tensor_addr(v.c), tensor_addr(v.a), starts_addr(&v), v.rows, v.experts, v.n, v.dtype};
		case_run(&c, &op);
		for (int64_t i = 0; i < v.experts * v.n; i++) {
			double sum = tensor_was(v.c, i), size = fabs(sum);
			const int64_t *first = v.first + v.begin + i / v.n;

			for (int64_t r = first[0]; r < first[1]; r++) {
				sum += tensor_get(v.a, r * v.n + i % v.n);
				size += fabs(tensor_get(v.a, r * v.n + i % v.n));
			}
			case_check(&c, v.c, i, sum, 2 * EPS_F32 * size, "sum");
		}
		case_end(&c);
	}
}

/* ---- the activation of gpt-oss ---- */

struct limited {
	double gate, up, alpha, limit, dout, dgate, dup;
};

static double limited_forward(void *context)
{
	const struct limited *v = context;
	double gate = fmin(v->gate, v->limit), up = fmax(-v->limit, fmin(v->up, v->limit));

	return v->dout * (up + 1) * gate / (1 + exp(-v->alpha * gate));
}

static void limited_backward(struct limited *v)
{
	double gate = fmin(v->gate, v->limit), up = fmax(-v->limit, fmin(v->up, v->limit)),
	       s = 1 / (1 + exp(-v->alpha * gate));

	v->dgate = v->gate > v->limit ? 0 : v->dout * (up + 1) * s * (1 + v->alpha * gate * (1 - s));
	v->dup = fabs(v->up) > v->limit ? 0 : v->dout * gate * s;
}

static void test_limited_reference(void **state)
{
	struct ops_case c;

	(void)state;
	case_begin(&c, "limited reference", 1);
	for (int i = 0; i < 200; i++) {
		struct limited v = {
		        4 * case_normal(&c), 4 * case_normal(&c), 1.702, 3.1, case_normal(&c), 0, 0};

		if (fabs(fabs(v.gate) - v.limit) < 0.01 || fabs(fabs(v.up) - v.limit) < 0.01)
			continue;
		limited_backward(&v);
		case_derivative(limited_forward, &v, &v.gate, v.dgate, 1);
		case_derivative(limited_forward, &v, &v.up, v.dup, 1);
	}
}

static void test_limited(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(80); seed++) {
		struct ops_case c;
		struct tensor *gate_up, *out, *dout, *dgate_up;
		struct op op = {.kind = OP_GLU_LIMITED}, grad = {.kind = OP_GLU_LIMITED_GRAD};
		struct limited v = {.alpha = 1.702, .limit = seed % 5 ? 7 : INFINITY};
		enum glu_order order;
		int64_t rows, cols;
		enum dtype dtype;

		case_begin(&c, "glu_limited", seed);
		rows = case_size(&c, 90);
		cols = case_size(&c, 1200);
		dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
		order = case_int(&c, 0, 1) ? GLU_HALVES : GLU_BY_TURNS;
		gate_up = case_tensor(&c, rows * 2 * cols, dtype, 4);
		out = case_tensor(&c, rows * cols, dtype, 1);
		dout = case_tensor(&c, rows * cols, dtype, 1);
		dgate_up = case_int(&c, 0, 1) ? gate_up : case_tensor(&c, rows * 2 * cols, dtype, 1);
		for (int64_t i = 0; i < 8 && i < rows * 2 * cols; i++)
			tensor_set(gate_up, i, i % 2 ? 7 : i % 4 ? -7 : 7.25);
		op.glu_limited = (struct op_glu_limited){tensor_addr(out), tensor_addr(gate_up), rows, cols,
		        v.alpha, v.limit, order, .dtype = dtype};
		case_run(&c, &op);
		for (int pass = 0; pass < 2; pass++) {
			for (int64_t i = 0; i < rows * cols; i++) {
				int64_t at = order == GLU_HALVES ? i / cols * 2 * cols + i % cols : 2 * i,
				        up = at + (order == GLU_HALVES ? cols : 1);
				double want, bound;

				v.gate = tensor_was(gate_up, at);
				v.up = tensor_was(gate_up, up);
				v.dout = pass ? tensor_get(dout, i) : 1;
				want = limited_forward(&v);
				limited_backward(&v);
				/* exponentials on a GPU for bf16: 1.2e-5 */
				bound = (dtype == DTYPE_BF16 ? 2e-5 : 40 * EPS_F32) * fabs(v.dout) *
				        (1 + fabs(v.gate)) * (1 + fabs(v.up));
				if (!pass) {
					case_check(&c, out, i, want, bound, "out");
					continue;
				}
				case_check(&c, dgate_up, at, v.dgate, bound, "dgate");
				case_check(&c, dgate_up, up, v.dup, bound, "dup");
			}
			grad.glu_limited_grad = (struct op_glu_limited_grad){tensor_addr(dgate_up),
			        tensor_addr(dout), tensor_addr(gate_up), rows, cols, v.alpha, v.limit, order,
			        .dtype = dtype};
			if (!pass)
				case_run(&c, &grad);
		}
		case_end(&c);
	}
}

/* NaN passes the clamps. */
static void test_limited_nan(void **state)
{
	(void)state;
	for (int which = 0; which < 2; which++) {
		struct ops_case c;
		struct tensor *gate_up, *out, *dout, *dgate_up;
		struct op op = {.kind = OP_GLU_LIMITED}, grad = {.kind = OP_GLU_LIMITED_GRAD};

		case_begin(&c, "glu_limited", 3);
		gate_up = case_tensor(&c, 2, DTYPE_F32, 1);
		out = case_tensor(&c, 1, DTYPE_F32, 1);
		dout = case_tensor(&c, 1, DTYPE_F32, 1);
		dgate_up = case_tensor(&c, 2, DTYPE_F32, 1);
		tensor_set(gate_up, which, NAN);
		op.glu_limited = (struct op_glu_limited){tensor_addr(out), tensor_addr(gate_up), 1, 1, 1.7, 7,
		        GLU_BY_TURNS, .dtype = DTYPE_F32};
		case_run(&c, &op);
		assert_true(isnan(tensor_get(out, 0)));
		grad.glu_limited_grad = (struct op_glu_limited_grad){tensor_addr(dgate_up), tensor_addr(dout),
		        tensor_addr(gate_up), 1, 1, 1.7, 7, GLU_BY_TURNS, .dtype = DTYPE_F32};
		case_run(&c, &grad);
		assert_true(isnan(tensor_get(dgate_up, 0)));
		case_forget(out);
		case_forget(dgate_up);
		case_end(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_rows),
	        cmocka_unit_test(test_weights),
	        cmocka_unit_test(test_colsum),
	        cmocka_unit_test(test_limited_reference),
	        cmocka_unit_test(test_limited),
	        cmocka_unit_test(test_limited_nan),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
