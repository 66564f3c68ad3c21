/* links: host_cpu */
/* also: tsan cuda */
/* Values within a limit and their gradient, bit by bit: both only choose. */
#include "tests/ops_check.h"

struct clamp_case {
	int64_t rows, cols, x_stride, y_stride;
	double limit;
	enum dtype dtype;
	struct tensor *x, *y;
};

/* Some values are at the limit, or not numbers. */
static void clamp_draw(struct ops_case *c, struct clamp_case *v)
{
	static const double limits[] = {0.25, 1, 1.5};

	*v = (struct clamp_case){.rows = case_size(c, 40),
	        .cols = case_size(c, 300),
	        .limit = limits[case_int(c, 0, 2)],
	        .dtype = case_int(c, 0, 1) ? DTYPE_F32 : DTYPE_BF16};
	v->x_stride = v->cols + case_int(c, 0, 4);
	v->y_stride = v->cols + case_int(c, 0, 4);
	v->x = case_tensor(c, (v->rows - 1) * v->x_stride + v->cols, v->dtype, 2);
	v->y = case_tensor(c, (v->rows - 1) * v->y_stride + v->cols, v->dtype, 2);
	for (int64_t i = 0; i < v->x->count; i += case_int(c, 1, 30))
		tensor_set(v->x, i,
		        case_int(c, 0, 5)   ? (case_int(c, 0, 1) ? v->limit : -v->limit)
		        : case_int(c, 0, 1) ? INFINITY
		                            : -INFINITY);
}

static void test_clamp(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct clamp_case v;
		struct op op = {.kind = OP_CLAMP};

		case_begin(&c, "clamp", seed);
		clamp_draw(&c, &v);
		op.clamp = (struct op_clamp){tensor_addr(v.y), tensor_addr(v.x), v.rows, v.cols, v.y_stride,
		        v.x_stride, v.limit, v.dtype};
		case_run(&c, &op);
		for (int64_t r = 0; r < v.rows; r++)
			for (int64_t j = 0; j < v.cols; j++)
				case_check(&c, v.y, r * v.y_stride + j,
				        fmax(-v.limit, fmin(v.limit, tensor_get(v.x, r * v.x_stride + j))), 0,
				        "y");
		case_end(&c);
	}
}

static void test_clamp_grad(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct clamp_case v;
		struct op op = {.kind = OP_CLAMP_GRAD};
		double *before;

		case_begin(&c, "clamp_grad", seed);
		clamp_draw(&c, &v);
		before = mem_alloc((size_t)v.y->count, sizeof(*before));
		for (int64_t i = 0; i < v.y->count; i++)
			before[i] = tensor_get(v.y, i);
		op.clamp_grad = (struct op_clamp_grad){tensor_addr(v.y), tensor_addr(v.x), v.rows, v.cols,
		        v.y_stride, v.x_stride, v.limit, v.dtype};
		case_run(&c, &op);
		for (int64_t r = 0; r < v.rows; r++)
			for (int64_t j = 0; j < v.cols; j++) {
				int64_t at = r * v.y_stride + j;

				case_check(&c, v.y, at,
				        fabs(tensor_get(v.x, r * v.x_stride + j)) <= v.limit ? before[at] : 0,
				        0, "dx");
			}
		mem_free(before);
		case_end(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_clamp),
	        cmocka_unit_test(test_clamp_grad),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
