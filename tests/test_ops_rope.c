/* links: host_cpu */
/* also: tsan cuda */
/* Rotary position embedding against fp64. */
#include "tests/ops_check.h"

/* Turning a pair, and turning it back. */
static void pair_turn(double *a, double *b, double cosine, double sine, enum rope_direction direction)
{
	double p = *a, q = *b, s = direction == ROPE_FORWARD ? sine : -sine;

	*a = p * cosine - q * s;
	*b = q * cosine + p * s;
}

struct turn {
	double a, b, cosine, sine, da, db;
};

static double turn_value(void *context)
{
	struct turn *t = context;
	double a = t->a, b = t->b;

	pair_turn(&a, &b, t->cosine, t->sine, ROPE_FORWARD);
	return a * t->da + b * t->db;
}

static void test_reference(void **state)
{
	struct ops_case c;

	(void)state;
	case_begin(&c, "reference", 1);
	for (int i = 0; i < 100; i++) {
		double angle = 3 * case_uniform(&c), a, b;
		struct turn t = {case_normal(&c), case_normal(&c), cos(angle), sin(angle), case_normal(&c),
		        case_normal(&c)};

		a = t.da, b = t.db;
		pair_turn(&a, &b, t.cosine, t.sine, ROPE_BACKWARD);
		case_derivative(turn_value, &t, &t.a, a, 1);
		case_derivative(turn_value, &t, &t.b, b, 1);
	}
}

static void rope_try(uint64_t seed)
{
	struct ops_case c;
	struct tensor *x, *table, *position;
	struct op op = {.kind = OP_ROPE};
	int64_t tokens, heads, rotary, head_stride, stride, rows, multiple;
	enum dtype dtype;

	case_begin(&c, "rope", seed);
	tokens = case_size(&c, 60);
	heads = seed % 15 ? case_int(&c, 1, 5) : 32;
	multiple = case_int(&c, 0, 1) ? 8 : 1; /* of 8: every head begins where the first does */
	rotary = 2 * (seed % 20 ? multiple * case_size(&c, 40 / multiple) : case_int(&c, 60, 90) * 8);
	rows = case_size(&c, 50);
	head_stride = rotary + (case_int(&c, 0, 1) ? 0 : multiple * case_int(&c, 0, 9));
	stride = heads * head_stride + (case_int(&c, 0, 1) ? 0 : multiple * case_int(&c, 0, 9));
	dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	x = case_tensor(&c, (tokens - 1) * stride + (heads - 1) * head_stride + rotary, dtype, 1);
	table = case_tensor(&c, rows * rotary, DTYPE_F32, 1);
	position = case_tensor(&c, tokens, DTYPE_I32, 1);
	for (int64_t t = 0; t < tokens; t++)
		tensor_set(position, t, (double)case_int(&c, 0, rows - 1));
	op.rope = (struct op_rope){.x = tensor_addr(x),
	        .table = tensor_addr(table),
	        .position = tensor_addr(position),
	        .tokens = tokens,
	        .heads = heads,
	        .stride = stride,
	        .head_stride = head_stride,
	        .rotary = rotary,
	        .table_rows = rows,
	        .direction = case_int(&c, 0, 1) ? ROPE_FORWARD : ROPE_BACKWARD,
	        .dtype = dtype,
	        .pairs = case_int(&c, 0, 2) ? ROPE_HALVES : ROPE_NEIGHBOURS};
	case_run(&c, &op);
	for (int64_t t = 0; t < tokens; t++)
		for (int64_t h = 0; h < heads; h++)
			for (int64_t j = 0; j < rotary / 2; j++) {
				int is_halves = op.rope.pairs == ROPE_HALVES;
				int64_t at = t * stride + h * head_stride + (is_halves ? j : 2 * j);
				int64_t other = at + (is_halves ? rotary / 2 : 1);
				int64_t row = (int64_t)tensor_get(position, t) * rotary;
				double cosine = tensor_get(table, row + j),
				       sine = tensor_get(table, row + rotary / 2 + j);
				double a = tensor_was(x, at), b = tensor_was(x, other);
				double bound =
				        2 * EPS_F32 * (fabs(a) + fabs(b)) * (fabs(cosine) + fabs(sine));

				pair_turn(&a, &b, cosine, sine, op.rope.direction);
				case_check(&c, x, at, a, bound, "x");
				case_check(&c, x, other, b, bound, "x");
			}
	case_end(&c);
}

static void test_random(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(150); seed++)
		rope_try(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_reference),
	        cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
