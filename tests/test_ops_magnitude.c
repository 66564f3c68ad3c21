/* links: host_cpu */
/* also: tsan cuda */
/* Weights with a magnitude for each row: norms of rows, scaled columns and gradients, beside sums in fp64. */
#include "tests/ops_check.h"

static double rounded(double x, enum dtype dtype)
{
	return dtype == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32((float)x)) : x;
}

static void row_norms_try(uint64_t seed)
{
	struct ops_case c;
	struct op op = {.kind = OP_ROW_NORMS};
	struct op_row_norms *o = &op.row_norms;
	struct tensor *norm, *w, *a, *b;

	case_begin(&c, "row_norms", seed);
	o->out = case_size(&c, 60);
	o->in = case_size(&c, 1100);
	o->rank = case_size(&c, 9);
	o->in_out = case_int(&c, 0, 1) != 0;
	o->w_stride = (o->in_out ? o->out : o->in) + case_int(&c, 0, 3);
	o->scale = case_int(&c, 0, 1) ? 1.5 : 0.1;
	o->dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	norm = case_tensor(&c, o->out, DTYPE_F32, 1);
	w = case_tensor(&c, (o->in_out ? o->in : o->out) * o->w_stride, o->dtype, 1);
	a = case_tensor(&c, o->rank * o->in, o->dtype, 1);
	b = case_tensor(&c, o->out * o->rank, o->dtype, 1);
	o->norm = tensor_addr(norm);
	o->w = tensor_addr(w);
	o->a = tensor_addr(a);
	o->b = tensor_addr(b);
	case_run(&c, &op);
	for (int64_t j = 0; j < o->out; j++) {
		double sum = 0, most = 0;

		for (int64_t i = 0; i < o->in; i++) {
			double v = tensor_get(w, o->in_out ? i * o->w_stride + j : j * o->w_stride + i);

			for (int64_t r = 0; r < o->rank; r++) {
				double part = o->scale * tensor_get(b, j * o->rank + r) *
				              tensor_get(a, r * o->in + i);

				v += part;
				most += part * part;
			}
			sum += v * v;
		}
		/* in bf16 either neighbour of a number halfway between them */
		case_check(&c, norm, j, sqrt(sum),
		        8 * (double)o->rank * EPS_F32 * sqrt(sum + most) +
		                (o->dtype == DTYPE_BF16 ? 1.01 * EPS_BF16 * sqrt(sum) : 0),
		        "norm");
		assert_true(rounded(tensor_get(norm, j), o->dtype) == tensor_get(norm, j));
	}
	case_end(&c);
}

static void test_row_norms(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++)
		row_norms_try(seed);
}

static void magnitude_try(uint64_t seed)
{
	struct ops_case c;
	struct op op = {.kind = OP_MAGNITUDE};
	struct op_magnitude *o = &op.magnitude;
	struct tensor *dst = NULL, *src, *magnitude, *norm, *bias;
	int in_place;

	case_begin(&c, "magnitude", seed);
	o->rows = case_size(&c, 40);
	o->cols = case_size(&c, 700);
	o->src_stride = o->cols + case_int(&c, 0, 9);
	o->dst_stride = o->cols + case_int(&c, 0, 9);
	o->dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	o->dst_dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	o->src_dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	o->minus = (double)case_int(&c, 0, 1);
	o->accumulate = case_int(&c, 0, 1) != 0;
	in_place = case_int(&c, 0, 2) == 0;
	if (in_place) {
		o->dst_dtype = o->src_dtype;
		o->dst_stride = o->src_stride;
	}
	src = case_tensor(&c, o->rows * o->src_stride, o->src_dtype, 1);
	dst = in_place ? src : case_tensor(&c, o->rows * o->dst_stride, o->dst_dtype, 1);
	magnitude = case_tensor(&c, o->cols, o->dtype, 1);
	norm = case_tensor(&c, o->cols, DTYPE_F32, 1);
	for (int64_t i = 0; i < o->cols; i++)
		tensor_set(norm, i, 0.5 + fabs(tensor_get(norm, i)));
	bias = case_int(&c, 0, 1) ? case_tensor(&c, o->cols, o->dtype, 1) : NULL;
	o->src = tensor_addr(src);
	o->dst = tensor_addr(dst);
	o->magnitude = tensor_addr(magnitude);
	o->norm = tensor_addr(norm);
	o->bias = tensor_addr(bias);
	case_run(&c, &op);
	for (int64_t r = 0; r < o->rows; r++)
		for (int64_t j = 0; j < o->dst_stride; j++) {
			int64_t at = r * o->dst_stride + j;
			double was = o->accumulate || j >= o->cols ? tensor_was(dst, at) : 0, by, part, plus;

			if (j >= o->cols) { /* between rows nothing changes */
				case_check(&c, dst, at, was, 0, "gap");
				continue;
			}
			by = tensor_get(magnitude, j) / tensor_get(norm, j);
			part = tensor_was(src, r * o->src_stride + j);
			plus = bias ? tensor_get(bias, j) : 0;
			case_check(&c, dst, at, (by - o->minus) * part + plus + was,
			        4 * EPS_F32 * ((fabs(by) + 1) * fabs(part) + fabs(plus) + fabs(was)),
			        "magnitude");
		}
	case_end(&c);
}

static void test_magnitude(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(200); seed++)
		magnitude_try(seed);
}

static void magnitude_grad_try(uint64_t seed)
{
	struct ops_case c;
	struct op op = {.kind = OP_MAGNITUDE_GRAD};
	struct op_magnitude_grad *o = &op.magnitude_grad;
	struct tensor *grad, *dy, *y, *norm;

	case_begin(&c, "magnitude_grad", seed);
	o->rows = case_size(&c, 300);
	o->cols = case_size(&c, 200);
	o->dy_stride = o->cols + case_int(&c, 0, 9);
	o->y_stride = o->cols + case_int(&c, 0, 9);
	o->dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	grad = case_tensor(&c, o->cols, DTYPE_F32, 1);
	dy = case_tensor(&c, o->rows * o->dy_stride, o->dtype, 1);
	y = case_tensor(&c, o->rows * o->y_stride, o->dtype, 1);
	norm = case_tensor(&c, o->cols, DTYPE_F32, 1);
	for (int64_t i = 0; i < o->cols; i++)
		tensor_set(norm, i, 0.5 + fabs(tensor_get(norm, i)));
	o->grad = tensor_addr(grad);
	o->dy = tensor_addr(dy);
	o->y = tensor_addr(y);
	o->norm = tensor_addr(norm);
	case_run(&c, &op);
	for (int64_t j = 0; j < o->cols; j++) {
		double sum = 0;

		for (int64_t r = 0; r < o->rows; r++)
			sum += tensor_get(dy, r * o->dy_stride + j) * tensor_get(y, r * o->y_stride + j);
		case_check(&c, grad, j, tensor_was(grad, j) + sum / tensor_get(norm, j), 0, "grad");
	}
	case_end(&c);
}

static void test_magnitude_grad(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++)
		magnitude_grad_try(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_row_norms),
	        cmocka_unit_test(test_magnitude),
	        cmocka_unit_test(test_magnitude_grad),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
