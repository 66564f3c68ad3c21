/* links: host_cpu */
/* also: tsan cuda */
/* The order of rows by experts, what is done with these rows, and the scale of experts, against fp64. */
#include "base/size.h"
#include "tests/ops_check.h"

enum { EXPERTS_MAX = 300 };

struct rows_case {
	int64_t tokens, chosen, experts, cols;
	enum dtype dtype;
	struct tensor *ids, *first, *slot, *row; /* filled */
};

/* In some cases one expert has most slots, and many have none. */
static void rows_draw(struct ops_case *c, struct rows_case *v)
{
	int is_skewed = (int)case_int(c, 0, 2);

	v->tokens = case_size(c, 150);
	v->experts = case_size(c, EXPERTS_MAX);
	v->chosen = case_int(c, 1, min_i64(9, v->experts));
	v->cols = case_size(c, 300);
	v->dtype = case_int(c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	v->ids = case_tensor(c, v->tokens * v->chosen, DTYPE_I32, 1);
	v->first = case_tensor(c, v->experts + 1, DTYPE_I32, 1);
	v->slot = case_tensor(c, v->tokens * v->chosen, DTYPE_I32, 1);
	v->row = case_tensor(c, v->tokens * v->chosen, DTYPE_I32, 1);
	for (int64_t t = 0; t < v->tokens; t++) {
		int64_t at = is_skewed ? v->experts / 3 : case_int(c, 0, v->experts - 1);

		for (int64_t j = 0; j < v->chosen; j++)
			tensor_set(v->ids, t * v->chosen + j, (double)((at + j * 7) % v->experts));
	}
}

static void rows_order(struct rows_case *v, double *first, double *slot, double *row)
{
	int64_t at = 0;

	for (int64_t e = 0; e < v->experts; e++) {
		first[e] = (double)at;
		for (int64_t s = 0; s < v->tokens * v->chosen; s++)
			if ((int64_t)tensor_get(v->ids, s) == e) {
				row[s] = (double)at;
				slot[at++] = (double)s;
			}
	}
	first[v->experts] = (double)at;
}

/* Fills the tensors, and returns nothing to check. */
static void rows_fill(struct rows_case *v)
{
	int64_t slots = v->tokens * v->chosen;
	double *all = mem_alloc((size_t)(2 * slots + v->experts + 1), sizeof(double));

	assert_non_null(all);
	rows_order(v, all + 2 * slots, all, all + slots);
	for (int64_t s = 0; s < slots; s++) {
		tensor_set(v->slot, s, all[s]);
		tensor_set(v->row, s, all[slots + s]);
	}
	for (int64_t e = 0; e <= v->experts; e++)
		tensor_set(v->first, e, all[2 * slots + e]);
	mem_free(all);
}

static void test_order(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct rows_case v;
		struct op op = {.kind = OP_ORDER};
		int64_t slots;
		double *all;

		case_begin(&c, "order", seed);
		rows_draw(&c, &v);
		slots = v.tokens * v.chosen;
		op.order = (struct op_order){tensor_addr(v.first), tensor_addr(v.slot), tensor_addr(v.row),
		        tensor_addr(v.ids), v.tokens, v.chosen, v.experts};
		case_run(&c, &op);
		all = mem_alloc((size_t)(2 * slots + v.experts + 1), sizeof(double));
		assert_non_null(all);
		rows_order(&v, all + 2 * slots, all, all + slots);
		for (int64_t s = 0; s < slots; s++) {
			case_check(&c, v.slot, s, all[s], 0, "slot");
			case_check(&c, v.row, s, all[slots + s], 0, "row");
		}
		for (int64_t e = 0; e <= v.experts; e++)
			case_check(&c, v.first, e, all[2 * slots + e], 0, "first");
		mem_free(all);
		case_end(&c);
	}
}

static void test_dispatch_combine(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct rows_case v;
		struct tensor *x, *rows, *y;
		struct op op = {.kind = OP_DISPATCH};
		int is_wide, accumulate;

		case_begin(&c, "dispatch", seed);
		rows_draw(&c, &v);
		rows_fill(&v);
		is_wide = (int)case_int(&c, 0, 1);
		accumulate = (int)case_int(&c, 0, 1);
		x = case_tensor(&c, v.tokens * v.cols, v.dtype, 1);
		rows = case_tensor(&c, v.tokens * v.chosen * v.cols, v.dtype, 1);
		y = case_tensor(&c, v.tokens * v.cols, is_wide ? DTYPE_F32 : v.dtype, 1);
		op.dispatch = (struct op_dispatch){tensor_addr(rows), tensor_addr(x), tensor_addr(v.slot),
		        v.tokens, v.chosen, v.cols, .dtype = v.dtype};
		case_run(&c, &op);
		for (int64_t i = 0; i < v.tokens * v.chosen * v.cols; i++) {
			int64_t slot = (int64_t)tensor_get(v.slot, i / v.cols);

			case_check(
			        &c, rows, i, tensor_get(x, slot / v.chosen * v.cols + i % v.cols), 0, "rows");
			tensor_set(rows, i, tensor_get(rows, i) * case_normal(&c));
		}
		c.name = "combine";
		op = (struct op){.kind = OP_COMBINE,
		        .combine = {tensor_addr(y), tensor_addr(rows), tensor_addr(v.row), v.tokens, v.chosen,
		                v.cols, v.dtype, y->dtype, .accumulate = accumulate}};
		case_run(&c, &op);
		for (int64_t i = 0; i < v.tokens * v.cols; i++) {
			double sum = accumulate ? tensor_was(y, i) : 0, size = fabs(sum);

			for (int64_t j = 0; j < v.chosen; j++) {
				int64_t row = (int64_t)tensor_get(v.row, i / v.cols * v.chosen + j);

				sum += tensor_get(rows, row * v.cols + i % v.cols);
				size += fabs(tensor_get(rows, row * v.cols + i % v.cols));
			}
			case_check(&c, y, i, sum, 10 * EPS_F32 * size, "y");
		}
		case_end(&c);
	}
}

static void test_weigh(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(100); seed++) {
		struct ops_case c;
		struct rows_case v;
		struct tensor *x, *dx, *weights, *dweights, *slot;
		struct op op = {.kind = OP_WEIGH};
		int64_t rows;

		case_begin(&c, "weigh", seed);
		rows_draw(&c, &v);
		rows_fill(&v);
		rows = v.tokens * v.chosen;
		slot = case_int(&c, 0, 2) ? v.slot : NULL;
		x = case_tensor(&c, rows * v.cols, v.dtype, 1);
		dx = case_tensor(&c, rows * v.cols, v.dtype, 1);
		weights = case_tensor(&c, rows, DTYPE_F32, 1);
		dweights = case_tensor(&c, rows, DTYPE_F32, 1);
		op.weigh = (struct op_weigh){tensor_addr(x), tensor_addr(weights), tensor_addr(slot), rows,
		        v.cols, .dtype = v.dtype};
		case_run(&c, &op);
		for (int64_t i = 0; i < rows * v.cols; i++) {
			int64_t r = i / v.cols, s = slot ? (int64_t)tensor_get(slot, r) : r;

			case_check(&c, x, i, tensor_was(x, i) * tensor_get(weights, s), 0, "x");
		}
		c.name = "weigh_grad";
		op = (struct op){.kind = OP_WEIGH_GRAD,
		        .weigh_grad = {tensor_addr(x), tensor_addr(dx), tensor_addr(dweights),
		                tensor_addr(weights), tensor_addr(slot), rows, v.cols, v.dtype}};
		case_run(&c, &op);
		for (int64_t r = 0; r < rows; r++) {
			int64_t s = slot ? (int64_t)tensor_get(slot, r) : r;
			double sum = 0, size = 0, weight = tensor_get(weights, s);

			for (int64_t i = r * v.cols; i < (r + 1) * v.cols; i++) {
				sum += tensor_was(x, i) * tensor_was(dx, i);
				size += fabs(tensor_was(x, i) * tensor_was(dx, i));
				case_check(&c, x, i, tensor_was(x, i) * weight, 0, "x");
				case_check(&c, dx, i, tensor_was(dx, i) * weight, 0, "dx");
			}
			case_check(&c, dweights, s, sum, 20 * EPS_F32 * size, "dweights");
		}
		case_end(&c);
	}
}

static void test_expert_scale(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(60); seed++) {
		struct ops_case c;
		struct rows_case v;
		struct tensor *scale, *weights, *dweights, *dscale;
		struct op op = {.kind = OP_EXPERT_SCALE};

		case_begin(&c, "expert_scale", seed);
		rows_draw(&c, &v);
		rows_fill(&v);
		scale = case_tensor(&c, v.experts, v.dtype, 1);
		weights = case_tensor(&c, v.tokens * v.chosen, DTYPE_F32, 1);
		dweights = case_tensor(&c, v.tokens * v.chosen, DTYPE_F32, 1);
		dscale = case_tensor(&c, v.experts, DTYPE_F32, 1);
		op.expert_scale = (struct op_expert_scale){tensor_addr(weights), tensor_addr(v.ids),
		        tensor_addr(scale), v.tokens, v.chosen, v.experts, v.dtype};
		case_run(&c, &op);
		for (int64_t s = 0; s < v.tokens * v.chosen; s++)
			case_check(&c, weights, s,
			        tensor_was(weights, s) * tensor_get(scale, (int64_t)tensor_get(v.ids, s)), 0,
			        "weights");
		c.name = "expert_scale_grad";
		op = (struct op){.kind = OP_EXPERT_SCALE_GRAD,
		        .expert_scale_grad = {tensor_addr(dweights), tensor_addr(dscale),
		                tensor_addr(weights), tensor_addr(v.first), tensor_addr(v.slot),
		                tensor_addr(scale), v.tokens, v.chosen, v.experts, v.dtype}};
		case_run(&c, &op);
		for (int64_t e = 0; e < v.experts; e++) {
			double sum = tensor_was(dscale, e), size = fabs(sum);

			for (int64_t s = 0; s < v.tokens * v.chosen; s++)
				if ((int64_t)tensor_get(v.ids, s) == e) {
					double part = tensor_was(dweights, s) * tensor_get(weights, s);

					sum += part;
					size += fabs(part);
					case_check(&c, dweights, s,
					        tensor_was(dweights, s) * tensor_get(scale, e), 0,
					        "dweights");
				}
			case_check(&c, dscale, e, sum, 4 * EPS_F32 * size, "dscale");
		}
		case_end(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_order),
	        cmocka_unit_test(test_dispatch_combine),
	        cmocka_unit_test(test_weigh),
	        cmocka_unit_test(test_expert_scale),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
