/* links: host_cpu */
/* also: tsan cuda */
/* Dropout and the noise of embeddings: element by element by device/noise.h, and its numbers by their
 * statistics. */
#include "tests/ops_check.h"

#include "device/noise.h"

static uint64_t key_of(const struct tensor *key, int64_t row)
{
	double value = tensor_get(key, row);
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static void dropout_try(uint64_t seed)
{
	static const double shares[] = {0.05, 0.5, 0, 0.9};
	struct ops_case c;
	struct op op = {.kind = OP_DROPOUT};
	struct op_dropout *o = &op.dropout;
	struct tensor *dst, *src, *key;

	case_begin(&c, "dropout", seed);
	o->rows = case_size(&c, 20);
	o->cols = case_int(&c, 0, 2) ? case_size(&c, 700) : 4 * case_size(&c, 200);
	o->src_stride = o->cols + (case_int(&c, 0, 1) ? 0 : 4 * case_int(&c, 0, 3));
	o->dst_stride = o->cols + (case_int(&c, 0, 1) ? 0 : case_int(&c, 0, 9));
	o->dst_dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	o->src_dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	o->accumulate = case_int(&c, 0, 1) != 0;
	o->share = shares[case_int(&c, 0, 3)];
	o->module = noise_module(seed % 2 ? "a" : "model.layers.0.self_attn.q_proj.lora_A.weight");
	dst = case_tensor(&c, o->rows * o->dst_stride, o->dst_dtype, 1);
	src = case_tensor(&c, o->rows * o->src_stride, o->src_dtype, 1);
	key = case_tensor(&c, o->rows, DTYPE_F64, 1);
	o->dst = tensor_addr(dst);
	o->src = tensor_addr(src);
	o->key = tensor_addr(key);
	case_run(&c, &op);
	for (int64_t r = 0; r < o->rows; r++)
		for (int64_t j = 0; j < o->dst_stride; j++) {
			int64_t at = r * o->dst_stride + j;
			double was = tensor_was(dst, at), part = 0;

			if (j >= o->cols) { /* between rows nothing changes */
				case_check(&c, dst, at, was, 0, "gap");
				continue;
			}
			if (noise_bits(noise_row(key_of(key, r), o->module), j) >= noise_limit(o->share))
				part = tensor_get(src, r * o->src_stride + j) * (float)(1 / (1 - o->share));
			case_check(&c, dst, at, part + (o->accumulate ? was : 0),
			        2 * EPS_F32 * (fabs(part) + fabs(was)), "dropout");
		}
	case_end(&c);
}

static void test_dropout(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(200); seed++)
		dropout_try(seed);
}

static void test_neftune(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(60); seed++) {
		struct ops_case c;
		struct op op = {.kind = OP_NEFTUNE};
		struct op_neftune *o = &op.neftune;
		struct tensor *x, *key, *start, *end;
		int64_t first = 0, next = 0;

		case_begin(&c, "neftune", seed);
		o->rows = case_size(&c, 30);
		o->cols = case_size(&c, 600);
		o->alpha = case_int(&c, 0, 1) ? 5 : 0.3;
		o->dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
		x = case_tensor(&c, o->rows * o->cols, o->dtype, 1);
		key = case_tensor(&c, o->rows, DTYPE_F64, 1);
		start = case_tensor(&c, o->rows, DTYPE_I32, 1);
		end = case_tensor(&c, o->rows, DTYPE_I32, 1);
		for (int64_t r = 0; r < o->rows; r++) {
			if (r == next) {
				first = r;
				next = r + case_int(&c, 1, o->rows - r);
			}
			tensor_set(start, r, (double)first);
			tensor_set(end, r, (double)next);
		}
		o->x = tensor_addr(x);
		o->key = tensor_addr(key);
		o->doc_start = tensor_addr(start);
		o->doc_end = tensor_addr(end);
		case_run(&c, &op);
		for (int64_t i = 0; i < o->rows * o->cols; i++) {
			int64_t r = i / o->cols;
			double tokens = tensor_get(end, r) - tensor_get(start, r);
			double most = o->alpha / sqrt(tokens * (double)o->cols);
			double u = noise_uniform(noise_bits(noise_row(key_of(key, r), 0), i % o->cols));

			case_check(&c, x, i, tensor_was(x, i) + most * u,
			        4 * EPS_F32 * (most + fabs(tensor_was(x, i))), "neftune");
		}
		case_end(&c);
	}
}

/* ---- statistics ---- */

enum { TOKENS = 256, COLUMNS = 1024 };

/* Numbers in (-1, 1) of a module at one step: element t of row t / 64. */
static float at(uint64_t step, uint64_t module, int64_t token, int64_t column)
{
	uint64_t key = noise_token(step, (uint64_t)token / 64, (uint64_t)token % 64);

	return noise_uniform(noise_bits(noise_row(key, module), column));
}

/* Of n independent numbers the mean is within 5 / sqrt(3 n) of 0, and so on. */
static void test_statistics(void **state)
{
	const double n = (double)TOKENS * COLUMNS, bound = 5 / sqrt(n);
	const uint64_t a = noise_module("a.lora_A.weight"), b = noise_module("b.lora_A.weight");
	/* beside: the next column, the next but one, the same of the next token, of the next row, of another
	 * module, of another step */
	double mean = 0, square = 0, beside[6] = {0};
	int64_t dropped[3] = {0};
	static const double shares[] = {0.05, 0.5, 0.9};

	(void)state;
	for (int64_t t = 0; t < TOKENS; t++)
		for (int64_t c = 0; c < COLUMNS; c++) {
			uint64_t row = noise_row(noise_token(7, (uint64_t)t / 64, (uint64_t)t % 64), a);
			double u = at(7, a, t, c);

			mean += u;
			square += u * u;
			beside[0] += u * at(7, a, t, c + 1);
			beside[1] += u * at(7, a, t, c + 2);
			beside[2] += u * at(7, a, t + 1, c);
			beside[3] += u * at(7, a, t + 64, c);
			beside[4] += u * at(7, b, t, c);
			beside[5] += u * at(8, a, t, c);
			for (int i = 0; i < 3; i++)
				dropped[i] += noise_bits(row, c) < noise_limit(shares[i]);
		}
	assert_true(fabs(mean / n) < bound / sqrt(3));
	assert_true(fabs(square / n - 1.0 / 3) < bound * 0.3);
	for (int i = 0; i < 6; i++)
		assert_true(fabs(beside[i] / n) < bound / 3);
	for (int i = 0; i < 3; i++)
		assert_true(
		        fabs((double)dropped[i] / n - shares[i]) < bound * sqrt(shares[i] * (1 - shares[i])));
	assert_int_equal(noise_limit(0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_dropout),
	        cmocka_unit_test(test_neftune),
	        cmocka_unit_test(test_statistics),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
