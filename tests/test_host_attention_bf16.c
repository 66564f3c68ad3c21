/* links: host_cpu */
/* also: usual */
/* Dot products of attention's bf16 rows against fp64 sums, with each instruction set of this CPU. */
#include "check.h"

#include "base/num.h"
#include "base/size.h"
#include "host/cpu/attention_bf16.h"
#include "host/cpu/matmul_amx.h"

#include <math.h>

enum { COLUMNS = ATTENTION_BF16_COLUMNS, HEAD = 128, STRIDE = HEAD + 16, FACTORS = COLUMNS * COLUMNS };

static float factors[FACTORS], out[COLUMNS * COLUMNS], sums[COLUMNS * HEAD], before[COLUMNS * HEAD];
/* Rounding of one addition, in 2^-24: BFDOT does not round to nearest. */
#if defined(__aarch64__)
enum { ROUNDING = 2 };
#else
enum { ROUNDING = 1 };
#endif

static uint16_t queries[COLUMNS * STRIDE], keys[COLUMNS * STRIDE];
static uint32_t pairs[HEAD / 2 * COLUMNS];

/* Beside `rows` rows of d elements everything is NaN: none of it may count. */
static void draw(uint16_t *x, int64_t rows, int64_t d, uint64_t seed)
{
	for (int64_t i = 0; i < COLUMNS * STRIDE; i++)
		x[i] = i / STRIDE < rows && i % STRIDE < d
		               ? bf16_from_f32((float)rng_normal(seed, 0, (uint64_t)i))
		               : 0x7fc0;
}

static void scores_check(const struct attention_bf16 *way, int64_t m, int64_t n, int64_t d, uint64_t seed)
{
	draw(queries, m, d, seed);
	draw(keys, n, d, seed + 1);
	way->pack(pairs, keys, STRIDE, n, d);
	memset(out, 0xff, sizeof out);
	way->scores(out, queries, STRIDE, pairs, m, n, d, 0.3f);
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < n; j++) {
			double sum = 0, size = 0;

			for (int64_t l = 0; l < d; l++) {
				double x = bf16_to_f32(queries[i * STRIDE + l]) *
				           (double)bf16_to_f32(keys[j * STRIDE + l]);

				sum += x;
				size += fabs(x);
			}
			assert_true(
			        fabs(out[i * COLUMNS + j] - 0.3f * sum) <= size * ROUNDING * d / 2 * 0x1p-24);
		}
	for (int64_t i = m * COLUMNS; i < COLUMNS * COLUMNS; i++)
		assert_true(isnan(out[i]));
}

/* is_transposed: the factors of a row of the result lie COLUMNS apart. */
static void add_check(
        const struct attention_bf16 *way, int64_t m, int64_t n, int64_t d, int is_transposed, uint64_t seed)
{
	int64_t row = is_transposed ? 1 : COLUMNS, col = is_transposed ? COLUMNS : 1;

	draw(keys, n, d, seed);
	for (int64_t i = 0; i < FACTORS; i++)
		factors[i] = NAN;
	for (int64_t i = 0; i < m; i++)
		for (int64_t l = 0; l < n; l++)
			factors[i * row + l * col] = (float)rng_normal(seed, 1, (uint64_t)(i * n + l));
	for (int64_t i = 0; i < COLUMNS * HEAD; i++)
		sums[i] = before[i] = (float)rng_normal(seed, 2, (uint64_t)i);
	way->add(sums, factors, row, col, keys, STRIDE, m, n, d);
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < d; j++) {
			double sum = before[i * d + j], size = fabs(sum);

			for (int64_t l = 0; l < n; l++) {
				uint16_t factor = bf16_from_f32(factors[i * row + l * col]);
				double x = (double)bf16_to_f32(factor) * bf16_to_f32(keys[l * STRIDE + j]);

				sum += x;
				size += fabs(x);
			}
			assert_true(fabs(sums[i * d + j] - sum) <= size * 130 * ROUNDING * 0x1p-24);
		}
	assert_memory_equal(sums + m * d, before + m * d, (size_t)(COLUMNS * HEAD - m * d) * sizeof *sums);
}

static void way_check(const struct attention_bf16 *way)
{
	static const int64_t sizes[][3] = {{64, 128, 64}, {64, 128, 128}, {1, 1, 32}, {17, 33, 64},
	        {32, 16, 96}, {33, 113, 32}, {63, 48, 128}, {15, 127, 64}};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		int64_t m = sizes[i][0], n = sizes[i][1], d = sizes[i][2];

		scores_check(way, m, n, d, 10 * i);
		add_check(way, m, n, d, 0, 10 * i + 3);
		add_check(way, m, n, d, 1, 10 * i + 4);
		add_check(way, n, min_i64(m, 64), d, 1, 10 * i + 5);
	}
}

static void test_vectors(void **state)
{
	const struct attention_bf16 *way = attention_bf16(64, 1);

	(void)state;
	if (!way) {
		print_message(
		        "SKIPPED attention by vectors of bf16: this CPU lacks them, or is faster without\n");
		return;
	}
	way_check(way);
	for (int64_t d = 2; d < 64; d += 18) { /* any even number, unlike the matrix unit */
		scores_check(way, 13, 37, d, 100 + (uint64_t)d);
		add_check(way, 13, 37, d, 0, 200 + (uint64_t)d);
		add_check(way, 13, 37, d, 1, 300 + (uint64_t)d);
	}
}

static void test_amx(void **state)
{
	const struct attention_bf16 *way = attention_bf16(64, 64);

	(void)state;
	if (way && matmul_amx_is_here())
		way_check(way);
	else
		print_message("SKIPPED attention by AMX: this CPU lacks it\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors), cmocka_unit_test(test_amx)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
