/* links: host_cpu */
/* also: tsan cuda */
/* Ops of FP8: codes and scales by their definition, bit for bit; products against sums in double. */
#include "tests/ops_check.h"

/* ---- codes ---- */

/* The nearest code by trying them all; at a tie the even one. */
static int nearest_code(float x)
{
	const float *value = code_values(CODE_E4M3);
	double least = INFINITY;
	int best = 0;

	for (int code = 0; code < 0x7f; code++) {
		double away = fabs((double)value[code] - fabs((double)x));

		if (away < least || (away == least && !(code & 1))) {
			least = away;
			best = code;
		}
	}
	return best | (signbit(x) ? 0x80 : 0);
}

struct square {
	int64_t row, row_end, col, col_end;
};

static struct square square_of(const struct op_encode *o, int64_t r, int64_t c)
{
	int64_t row = r / o->block_rows * o->block_rows,
	        col = (o->lead + c) / CODE_BLOCK * CODE_BLOCK - o->lead;
	struct square s = {row, row + o->block_rows, col < 0 ? 0 : col, col + CODE_BLOCK};

	s.row_end = s.row_end < o->rows ? s.row_end : o->rows;
	s.col_end = s.col_end < o->cols ? s.col_end : o->cols;
	return s;
}

/* Zeros, numbers of all sizes, infinities and NaN, in blocks that have only one kind and in others. */
static void odd_numbers(struct ops_case *c, struct tensor *src)
{
	int kind = (int)case_int(c, 0, 4);

	for (int64_t i = 0; i < src->count; i++) {
		if (kind == 0)
			tensor_set(src, i, 0);
		else if (kind == 1)
			tensor_set(src, i, ldexp(case_normal(c), (int)case_int(c, -140, 120)));
		else if (kind == 2 && !case_int(c, 0, 99))
			tensor_set(src, i, case_int(c, 0, 1) ? NAN : -INFINITY);
		else if (kind == 3)
			tensor_set(src, i, ldexp((double)case_int(c, -16, 16), -9)); /* ties */
	}
}

static void encode_check(struct ops_case *c, const struct op_encode *o, const struct tensor *src,
        struct tensor *codes, struct tensor *scales)
{
	int64_t blocks = coded_blocks(o->lead, o->cols);

	for (int64_t r = 0; r < o->rows; r++)
		for (int64_t col = 0; col < o->cols; col++) {
			struct square s = square_of(o, r, col);
			int64_t at = r / o->block_rows * blocks + (o->lead + col) / CODE_BLOCK;
			float most = 0, scale, x = (float)tensor_get(src, r * o->src_stride + col);
			int is_nan = 0;

			for (int64_t i = s.row; i < s.row_end; i++)
				for (int64_t j = s.col; j < s.col_end; j++) {
					float value = fabsf((float)tensor_get(src, i * o->src_stride + j));

					is_nan |= isnan(value);
					most = value > most ? value : most;
				}
			scale = is_nan ? NAN : most / 448;
			if (isnan(scale))
				case_check_bits(c, scales, at, 0x7fc00000, "scale");
			else
				case_check_bits(c, scales, at, f32_bits(scale), "scale");
			case_check(c, codes, r * o->cols + col,
			        scale > 0 && isfinite(scale) ? nearest_code(x / scale) : 0, 0, "code");
		}
}

static void test_encode(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(80); seed++) {
		struct op op = {.kind = OP_ENCODE};
		struct op_encode *o = &op.encode;
		struct tensor *src, *codes, *scales;
		struct ops_case c;

		case_begin(&c, "encode", seed);
		o->block_rows = case_int(&c, 0, 1) ? 1 : CODE_BLOCK;
		o->rows = case_size(&c, seed % 8 ? 20 : 200);
		o->cols = seed % 3 ? case_size(&c, 300) : 4 * case_size(&c, 80);
		o->src_stride = o->cols + (case_int(&c, 0, 1) ? 4 * case_int(&c, 0, 3) : case_int(&c, 0, 5));
		o->lead = case_int(&c, 0, 2) ? 0 : case_int(&c, 0, CODE_BLOCK - 1);
		o->src_dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
		src = case_tensor(&c, (o->rows - 1) * o->src_stride + o->cols, o->src_dtype, 1);
		codes = case_tensor(&c, o->rows * o->cols, DTYPE_U8, 1);
		scales = case_tensor(&c, ((o->rows - 1) / o->block_rows + 1) * coded_blocks(o->lead, o->cols),
		        DTYPE_F32, 1);
		odd_numbers(&c, src);
		o->src = tensor_addr(src);
		o->codes = tensor_addr(codes);
		o->scales = tensor_addr(scales);
		case_run(&c, &op);
		encode_check(&c, o, src, codes, scales);
		case_end(&c);
	}
}

/* ---- products ---- */

struct coded_case {
	struct ops_case c;
	struct op op;
	struct tensor *out, *a, *b, *a_scales, *b_scales, *bias;
};

/* Any number. `nan`: one in so many is NaN. */
static void codes_fill(struct ops_case *c, struct tensor *codes, int64_t nan)
{
	for (int64_t i = 0; i < codes->count; i++) {
		int64_t code = case_int(c, 0, 255);

		tensor_set(codes, i,
		        (double)((code & 0x7f) == 0x7f && case_int(c, 1, nan) > 1 ? code - 1 : code));
	}
}

static void case_make(struct coded_case *t, uint64_t seed, int64_t m, int64_t n, int64_t k)
{
	struct op_coded_matmul *o = &t->op.coded_matmul;
	struct ops_case *c = &t->c;
	int turned;

	t->op = (struct op){.kind = OP_CODED_MATMUL};
	case_begin(c, "coded_matmul", seed);
	o->m = m ? m : case_size(c, 150);
	o->n = n ? n : case_size(c, 150);
	o->k = k ? k : case_size(c, 300);
	if (seed % 3 == 0) { /* whole vectors */
		o->n = (o->n + 15) / 16 * 16;
		o->k = (o->k + 15) / 16 * 16;
	}
	o->c_stride = o->n + case_int(c, 0, 1) * case_int(c, 0, 9);
	o->b_layout = case_int(c, 0, 1) ? MATMUL_TRANSPOSED : MATMUL_NORMAL;
	o->b_lead = case_int(c, 0, 2) ? 0 : case_int(c, 0, CODE_BLOCK - 1);
	o->c_dtype = case_int(c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	o->bias_dtype = case_int(c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	o->accumulate = (int)case_int(c, 0, 1);
	turned = o->b_layout == MATMUL_TRANSPOSED;
	t->a = case_tensor(c, o->m * o->k, DTYPE_U8, 1);
	t->b = case_tensor(c, o->n * o->k, DTYPE_U8, 1);
	t->a_scales = case_tensor(c, o->m * coded_blocks(turned ? 0 : o->b_lead, o->k), DTYPE_F32, 1e-3);
	t->b_scales = case_tensor(c,
	        coded_blocks(o->b_lead, turned ? o->n : o->k) * coded_blocks(0, turned ? o->k : o->n),
	        DTYPE_F32, 1e-3);
	t->out = case_tensor(c, (o->m - 1) * o->c_stride + o->n, o->c_dtype, 1);
	t->bias = !o->accumulate && case_int(c, 0, 1) ? case_tensor(c, o->n, o->bias_dtype, 1) : NULL;
	o->c = tensor_addr(t->out);
	o->a = tensor_addr(t->a);
	o->b = tensor_addr(t->b);
	o->a_scales = tensor_addr(t->a_scales);
	o->b_scales = tensor_addr(t->b_scales);
	o->bias = tensor_addr(t->bias);
	if (!o->accumulate) /* c must not be read: NaN would stay */
		for (int64_t i = 0; i < o->m; i++)
			for (int64_t j = 0; j < o->n; j++)
				tensor_set(t->out, i * o->c_stride + j, NAN);
}

/* A term of element i, j and the position in k, in double. */
static double term_of(const struct coded_case *t, int64_t i, int64_t j, int64_t l)
{
	const struct op_coded_matmul *o = &t->op.coded_matmul;
	const float *value = code_values(CODE_E4M3);
	int turned = o->b_layout == MATMUL_TRANSPOSED;
	int64_t lead = turned ? 0 : o->b_lead, row = turned ? j : l, col = turned ? l : j;
	int64_t across = coded_blocks(0, turned ? o->k : o->n);

	return (double)value[(int)tensor_get(t->a, i * o->k + l)] *
	       tensor_get(t->a_scales, i * coded_blocks(lead, o->k) + (lead + l) / CODE_BLOCK) *
	       (double)value[(int)tensor_get(t->b, row * (turned ? o->k : o->n) + col)] *
	       tensor_get(t->b_scales, (o->b_lead + row) / CODE_BLOCK * across + col / CODE_BLOCK);
}

/* Additions of k terms and of blocks, and the products with scales, may each be off by an ulp: tensor cores
 * cut. */
static void case_compare(struct coded_case *t)
{
	const struct op_coded_matmul *o = &t->op.coded_matmul;

	for (int64_t i = 0; i < o->m; i++)
		for (int64_t j = 0; j < o->n; j++) {
			int64_t at = i * o->c_stride + j;
			double sum = o->accumulate ? tensor_was(t->out, at) : 0, size = fabs(sum);

			if (t->bias)
				sum += tensor_get(t->bias, j), size += fabs(tensor_get(t->bias, j));
			for (int64_t l = 0; l < o->k; l++) {
				double term = term_of(t, i, j, l);

				sum += term;
				size += fabs(term);
			}
			if (!isnan(sum)) {
				case_check(
				        &t->c, t->out, at, sum, 2 * (double)(o->k + 8) * EPS_F32 * size, "c");
				continue;
			}
			if (!isnan(tensor_get(t->out, at)))
				fail_msg("%lld, %lld is a number, not NaN", (long long)i, (long long)j);
			t->out->written[at] = 1;
		}
}

static void test_products(void **state)
{
	static const int64_t shapes[][3] = {{130, 257, 400}, {1, 300, 513}, {129, 1, 130}, {260, 64, 1}};
	struct coded_case t;

	(void)state;
	for (uint64_t seed = 0; seed < case_count(60); seed++) {
		const int64_t *shape = seed < 12 ? shapes[seed % 4] : (const int64_t[3]){0};

		case_make(&t, seed, shape[0], shape[1], shape[2]);
		codes_fill(&t.c, t.a, INT64_MAX);
		codes_fill(&t.c, t.b, INT64_MAX);
		case_run(&t.c, &t.op);
		case_compare(&t);
		case_end(&t.c);
	}
}

/* A NaN reaches all that it is a term of, and nothing else. */
static void test_nan(void **state)
{
	struct coded_case t;

	(void)state;
	for (uint64_t seed = 0; seed < case_count(24); seed++) {
		case_make(&t, seed + 500, 0, 0, 0);
		codes_fill(&t.c, t.a, seed % 2 ? 40 : INT64_MAX);
		codes_fill(&t.c, t.b, seed % 2 ? 40 : INT64_MAX);
		for (int64_t i = 0; i < t.a_scales->count && seed % 2 == 0; i += case_int(&t.c, 2, 9))
			tensor_set(t.a_scales, i, case_int(&t.c, 0, 1) ? NAN : INFINITY);
		for (int64_t i = 0; i < t.b_scales->count && seed % 4 == 0; i += case_int(&t.c, 2, 9))
			tensor_set(t.b_scales, i, NAN);
		for (int64_t i = 0; i < t.a->count && seed % 2 == 0; i++) /* as encode leaves such blocks */
			if (!isfinite(tensor_get(t.a_scales, 0)))
				tensor_set(t.a, i, 0);
		case_run(&t.c, &t.op);
		case_compare(&t);
		case_end(&t.c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_encode),
	        cmocka_unit_test(test_products),
	        cmocka_unit_test(test_nan),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
