/* links: host_cpu */
/* also: tsan cuda */
/* Ops on the rows of some experts after others give the bits of one op on all rows. */
#include "base/size.h"
#include "tests/ops_check.h"

enum { EXPERTS = 24, PART_ARRAYS = 4 };

/* Rows in the order of experts, and the arrays of an op: for all rows at once, and for parts. */
struct parts_case {
	int64_t tokens, chosen, rows, cols;
	enum dtype dtype;
	struct tensor *first, *slot, *row, *whole[PART_ARRAYS], *parts[PART_ARRAYS];
};

/* Many experts have no rows. */
static void parts_draw(struct ops_case *c, struct parts_case *v)
{
	int64_t *ids, at = 0;

	*v = (struct parts_case){.tokens = case_size(c, 60), .chosen = case_int(c, 1, 8)};
	v->rows = v->tokens * v->chosen;
	v->cols = case_int(c, 0, 1) ? case_size(c, 150) : 16 * case_int(c, 1, 40);
	v->dtype = case_int(c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	v->first = case_tensor(c, EXPERTS + 1, DTYPE_I32, 1);
	v->slot = case_tensor(c, v->rows, DTYPE_I32, 1);
	v->row = case_tensor(c, v->rows, DTYPE_I32, 1);
	ids = mem_alloc((size_t)v->rows, sizeof(*ids));
	assert_non_null(ids);
	for (int64_t t = 0; t < v->tokens; t++) {
		int64_t begin = case_int(c, 0, 5);

		for (int64_t j = 0; j < v->chosen; j++) /* no expert twice, in any order */
			ids[t * v->chosen + j] = (begin + 5 * (v->chosen - j)) % EXPERTS;
	}
	for (int64_t e = 0; e < EXPERTS; e++) {
		tensor_set(v->first, e, (double)at);
		for (int64_t s = 0; s < v->rows; s++)
			if (ids[s] == e) {
				tensor_set(v->row, s, (double)at);
				tensor_set(v->slot, at++, (double)s);
			}
	}
	tensor_set(v->first, EXPERTS, (double)at);
	mem_free(ids);
}

/* Array n, twice with the same numbers. */
static void array_draw(struct ops_case *c, struct parts_case *v, int n, int64_t count, enum dtype dtype)
{
	v->whole[n] = case_tensor(c, count, dtype, 1);
	v->parts[n] = case_tensor(c, count, dtype, 1);
	for (int64_t i = 0; i < count; i++)
		tensor_set_bits(v->parts[n], i, tensor_bits(v->whole[n], i));
}

/* The op on array 0 to 3 of `at`, for a range that is not the first or is. */
typedef struct op parts_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later);

static void parts_check(struct ops_case *c, struct parts_case *v, parts_op *make, int is_reversed)
{
	const struct row_range all = {DEV_NONE, 0, 0};
	struct op op = make(v, v->whole, all, 0);
	int64_t from = is_reversed ? EXPERTS : 0;

	case_run(c, &op);
	for (int later = 0; is_reversed ? from > 0 : from < EXPERTS; later = 1) {
		int64_t left = is_reversed ? from : EXPERTS - from, n = case_int(c, 1, left),
		        begin = is_reversed ? from - n : from;

		op = make(v, v->parts,
		        (struct row_range){dev_at(tensor_addr(v->first), 4 * begin), n, EXPERTS}, later);
		case_run(c, &op);
		from = is_reversed ? begin : begin + n;
	}
	for (int n = 0; n < PART_ARRAYS && v->whole[n]; n++) {
		case_forget(v->whole[n]);
		for (int64_t i = 0; i < v->whole[n]->count; i++)
			case_check_bits(c, v->parts[n], i, tensor_bits(v->whole[n], i), "part");
	}
	case_end(c);
}

static struct op dispatch_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	(void)later;
	return (struct op){.kind = OP_DISPATCH,
	        .dispatch = {tensor_addr(at[0]), tensor_addr(at[1]), tensor_addr(v->slot), v->tokens,
	                v->chosen, v->cols, v->dtype, range}};
}

static struct op combine_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	return (struct op){.kind = OP_COMBINE,
	        .combine = {.y = tensor_addr(at[0]),
	                .x = tensor_addr(at[1]),
	                .row = tensor_addr(v->row),
	                .tokens = v->tokens,
	                .chosen = v->chosen,
	                .cols = v->cols,
	                .dtype = v->dtype,
	                .y_dtype = DTYPE_F32,
	                .goes_on = later,
	                .range = range}};
}

static struct op combine_reversed_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	struct op op = combine_op(v, at, range, later);

	op.combine.is_reversed = 1;
	return op;
}

static struct op weigh_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	(void)later;
	return (struct op){.kind = OP_WEIGH,
	        .weigh = {tensor_addr(at[0]), tensor_addr(at[1]), tensor_addr(v->slot), v->rows, v->cols,
	                v->dtype, range}};
}

static struct op weigh_grad_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	(void)later;
	return (struct op){.kind = OP_WEIGH_GRAD,
	        .weigh_grad = {tensor_addr(at[0]), tensor_addr(at[2]), tensor_addr(at[3]), tensor_addr(at[1]),
	                tensor_addr(v->slot), v->rows, v->cols, v->dtype, range}};
}

/* Gates of [rows, 2 cols] in array 0. */
static struct op gate_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	dev_addr x = dev_at(tensor_addr(at[0]), v->cols * dtype_bytes(v->dtype));

	(void)later;
	return (struct op){.kind = OP_GATE,
	        .gate = {tensor_addr(at[1]), x, tensor_addr(at[0]), v->rows, 1, v->cols, 2 * v->cols, v->cols,
	                2 * v->cols, 2 * v->cols, ACT_SILU, v->dtype, range}};
}

static struct op gate_grad_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	dev_addr x = dev_at(tensor_addr(at[0]), v->cols * dtype_bytes(v->dtype));

	(void)later;
	return (struct op){.kind = OP_GATE_GRAD,
	        .gate_grad = {x, tensor_addr(at[0]), tensor_addr(at[1]), x, tensor_addr(at[0]), v->rows, 1,
	                v->cols, 2 * v->cols, v->cols, 2 * v->cols, 2 * v->cols, ACT_SILU, v->dtype, range}};
}

/* Without x a part has the bits of op_act. */
static struct op act_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	(void)later;
	if (dev_is_none(range.first))
		return (struct op){.kind = OP_ACT,
		        .act = {tensor_addr(at[1]), tensor_addr(at[0]), v->rows * v->cols, ACT_RELU2,
		                v->dtype}};
	return (struct op){.kind = OP_GATE,
	        .gate = {tensor_addr(at[1]), DEV_NONE, tensor_addr(at[0]), v->rows, 1, v->cols, v->cols,
	                v->cols, v->cols, v->cols, ACT_RELU2, v->dtype, range}};
}

static struct op act_grad_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	(void)later;
	if (dev_is_none(range.first))
		return (struct op){.kind = OP_ACT_GRAD,
		        .act_grad = {tensor_addr(at[0]), tensor_addr(at[1]), tensor_addr(at[0]),
		                v->rows * v->cols, ACT_GELU, v->dtype}};
	return (struct op){.kind = OP_GATE_GRAD,
	        .gate_grad = {DEV_NONE, tensor_addr(at[0]), tensor_addr(at[1]), DEV_NONE, tensor_addr(at[0]),
	                v->rows, 1, v->cols, v->cols, v->cols, v->cols, v->cols, ACT_GELU, v->dtype, range}};
}

static struct op limited_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	(void)later;
	return (struct op){.kind = OP_GLU_LIMITED,
	        .glu_limited = {tensor_addr(at[1]), tensor_addr(at[0]), v->rows, v->cols, 1.702, 1,
	                GLU_BY_TURNS, v->dtype, range}};
}

static struct op limited_grad_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	(void)later;
	return (struct op){.kind = OP_GLU_LIMITED_GRAD,
	        .glu_limited_grad = {tensor_addr(at[0]), tensor_addr(at[1]), tensor_addr(at[0]), v->rows,
	                v->cols, 1.702, 1, GLU_BY_TURNS, v->dtype, range}};
}

/* The second half of wide rows += narrow rows. */
static struct op columns_op(
        const struct parts_case *v, struct tensor *const *at, struct row_range range, int later)
{
	(void)later;
	return (struct op){.kind = OP_COLUMNS,
	        .columns = {dev_at(tensor_addr(at[0]), v->cols * dtype_bytes(v->dtype)), tensor_addr(at[1]),
	                v->rows, v->cols, 2 * v->cols, v->cols, v->dtype, v->dtype, 1, .range = range}};
}

static void test_parts(void **state)
{
	static const struct {
		const char *name;
		parts_op *make;
		int is_reversed, array_0, array_1; /* columns for each row; 0: one a token; -1: one weight */
		int has_more;
	} all[] = {
	        {"dispatch", dispatch_op, 0, 1, 0, 0},
	        {"combine", combine_op, 0, 0, 1, 0},
	        {"combine, reversed", combine_reversed_op, 1, 0, 1, 0},
	        {"weigh", weigh_op, 0, 1, -1, 0},
	        {"weigh_grad", weigh_grad_op, 0, 1, -1, 1},
	        {"gate", gate_op, 0, 2, 1, 0},
	        {"gate_grad", gate_grad_op, 0, 2, 1, 0},
	        {"gate without x", act_op, 0, 1, 1, 0},
	        {"gate_grad without x", act_grad_op, 0, 1, 1, 0},
	        {"glu_limited", limited_op, 0, 2, 1, 0},
	        {"glu_limited_grad", limited_grad_op, 0, 2, 1, 0},
	        {"columns", columns_op, 0, 2, 1, 0},
	};

	(void)state;
	for (size_t n = 0; n < sizeof(all) / sizeof(*all); n++)
		for (uint64_t seed = 0; seed < case_count(24); seed++) {
			struct ops_case c;
			struct parts_case v;
			int is_sum = all[n].make == combine_op || all[n].make == combine_reversed_op;

			case_begin(&c, all[n].name, seed);
			parts_draw(&c, &v);
			array_draw(&c, &v, 0, (all[n].array_0 ? v.rows * all[n].array_0 : v.tokens) * v.cols,
			        is_sum ? DTYPE_F32 : v.dtype);
			array_draw(&c, &v, 1,
			        all[n].array_1 < 0 ? v.rows : (all[n].array_1 ? v.rows : v.tokens) * v.cols,
			        all[n].array_1 < 0 ? DTYPE_F32 : v.dtype);
			if (all[n].has_more) {
				array_draw(&c, &v, 2, v.rows * v.cols, v.dtype);
				array_draw(&c, &v, 3, v.rows, DTYPE_F32);
			}
			parts_check(&c, &v, all[n].make, all[n].is_reversed);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts)};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
