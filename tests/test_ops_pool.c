/* links: host_cpu */
/* also: tsan cuda */
/* The largest state of each document, and where its gradient goes. */
#include "tests/ops_check.h"

/* Documents of 1 to 9 rows; some numbers are equal, some NaN. */
static void pool_try(uint64_t seed)
{
	struct ops_case c;
	struct op op = {.kind = OP_POOL_MAX};
	struct op_pool_max *o = &op.pool_max;
	struct tensor *out, *place, *x, *first, *last, *dx;

	case_begin(&c, "pool_max", seed);
	o->documents = case_size(&c, 12);
	o->cols = case_size(&c, seed % 5 ? 40 : 600);
	o->dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	first = case_tensor(&c, o->documents, DTYPE_I32, 1);
	last = case_tensor(&c, o->documents, DTYPE_I32, 1);
	for (int64_t d = 0; d < o->documents; d++) {
		tensor_set(first, d, (double)o->rows);
		o->rows += case_int(&c, 1, 9);
		tensor_set(last, d, (double)o->rows - 1);
	}
	out = case_tensor(&c, o->documents * o->cols, DTYPE_F32, 1);
	place = case_tensor(&c, o->documents * o->cols, DTYPE_I32, 1);
	x = case_tensor(&c, o->rows * o->cols, o->dtype, 1);
	for (int64_t i = 0; i < x->count; i++)
		if (case_int(&c, 0, 9) < 4)
			tensor_set(x, i, (double)case_int(&c, -1, 1));
	for (int64_t i = 0; i < x->count && seed % 3 == 0; i += 97)
		tensor_set(x, i, NAN);
	o->out = tensor_addr(out);
	o->place = tensor_addr(place);
	o->x = tensor_addr(x);
	o->first = tensor_addr(first);
	o->last = tensor_addr(last);
	case_run(&c, &op);
	for (int64_t i = 0; i < out->count; i++) {
		int64_t d = i / o->cols, at = (int64_t)tensor_get(first, d);

		for (int64_t r = at + 1; r <= (int64_t)tensor_get(last, d); r++) {
			double best = tensor_get(x, at * o->cols + i % o->cols),
			       value = tensor_get(x, r * o->cols + i % o->cols);

			if (value > best || (isnan(value) && !isnan(best)))
				at = r;
		}
		if (isnan(tensor_get(x, at * o->cols + i % o->cols)))
			case_check_bits(&c, out, i, tensor_bits(out, i), "a NaN");
		else
			case_check(&c, out, i, tensor_get(x, at * o->cols + i % o->cols), 0, "largest");
		assert_true(isnan(tensor_get(x, at * o->cols + i % o->cols)) == isnan(tensor_get(out, i)));
		case_check(&c, place, i, (double)at, 0, "place");
	}
	for (int64_t i = 0; i < out->count; i++)
		tensor_set(out, i, case_normal(&c));
	case_forget(out);
	case_forget(place);
	dx = case_tensor(&c, o->rows * o->cols, DTYPE_F32, 1);
	op = (struct op){.kind = OP_POOL_MAX_GRAD,
	        .pool_max_grad = {tensor_addr(dx), tensor_addr(out), tensor_addr(place), o->documents,
	                o->cols, o->rows}};
	case_run(&c, &op);
	for (int64_t i = 0; i < out->count; i++) {
		int64_t at =
		        (int64_t)tensor_get(place, i) * op.pool_max_grad.cols + i % op.pool_max_grad.cols;

		case_check(&c, dx, at, tensor_was(dx, at) + tensor_get(out, i), EPS_F32 * 10, "gradient");
	}
	case_end(&c);
}

static void test_pool(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(60); seed++)
		pool_try(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_pool)};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
