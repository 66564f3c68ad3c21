/* links: base */
/* also: usual */
/* Numbers: rounding to bf16, the two halves of an fp32 value, counter-based random numbers. */
#include "base/num.h"
#include "tests/check.h"

#include <math.h>

/* The value of a 16-bit float by its definition, in double: exact for both kinds. */
static double half_value(uint16_t h, int exponent_bits)
{
	int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
	int exponent = (h & 0x7fff) >> fraction_bits, fraction = h & ((1 << fraction_bits) - 1);
	double sign = h & 0x8000 ? -1 : 1;

	if (exponent == (1 << exponent_bits) - 1)
		return fraction ? NAN : sign * INFINITY;
	if (exponent)
		return sign * ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
	return sign * ldexp(fraction, 1 - bias - fraction_bits);
}

/* Nearest finite half by search over all positive halves, ties to even, and infinity from the midpoint
 * above the largest one on. */
static uint16_t half_nearest(double x, int exponent_bits)
{
	uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << (15 - exponent_bits));
	uint16_t sign = signbit(x) ? 0x8000 : 0, low = 0, high = infinity;
	double abs = fabs(x), below, above;

	while (high - low >
	        1) { /* value(low) <= abs < value(high), infinity counted as the next power of two */
		uint16_t middle = (uint16_t)((low + high) / 2);

		if (half_value(middle, exponent_bits) <= abs)
			low = middle;
		else
			high = middle;
	}
	below = half_value(low, exponent_bits);
	above = high == infinity ? ldexp(1, 1 << (exponent_bits - 1)) : half_value(high, exponent_bits);
	if (abs - below < above - abs || (abs - below == above - abs && !(low & 1)))
		return sign | low;
	return sign | high;
}

static void same_half(float x, uint16_t got, int exponent_bits)
{
	uint16_t wanted = isinf(x) ? (uint16_t)((f32_bits(x) >> 16 & 0x8000) |
	                                        ((1 << exponent_bits) - 1) << (15 - exponent_bits))
	                           : half_nearest(x, exponent_bits);

	if (got != wanted) {
		print_error("%a: got %04x, wanted %04x (%d exponent bits)\n", (double)x, got, wanted,
		        exponent_bits);
		fail();
	}
}

static void every_half(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 65536; h++) {
		float bf16 = bf16_to_f32((uint16_t)h), f16 = f16_to_f32((uint16_t)h);
		double bf16_wanted = half_value((uint16_t)h, 8), f16_wanted = half_value((uint16_t)h, 5);

		assert_int_equal(!!signbit(bf16), h >> 15);
		assert_int_equal(!!signbit(f16), h >> 15);
		if (isnan(bf16_wanted)) {
			assert_true(isnan(bf16) && isnan(bf16_to_f32(bf16_from_f32(bf16))));
		} else {
			assert_true(bf16 == bf16_wanted);
			assert_int_equal(bf16_from_f32(bf16), h);
		}
		if (isnan(f16_wanted)) {
			assert_true(isnan(f16) && isnan(f16_to_f32(f16_from_f32(f16))));
		} else {
			assert_true(f16 == f16_wanted);
			assert_int_equal(f16_from_f32(f16), h);
		}
	}
}

/* Around each half and around each midpoint between two: the value and its neighbours in fp32. */
static void rounding_at_every_midpoint(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 65536; h++) {
		uint32_t bits = h << 16;

		for (int step = -1; step <= 1; step++) {
			float exact = f32_from_bits(bits + (uint32_t)step);
			float middle = f32_from_bits(bits + 0x8000 + (uint32_t)step);

			if (!isnan(exact))
				same_half(exact, bf16_from_f32(exact), 8);
			if (!isnan(middle))
				same_half(middle, bf16_from_f32(middle), 8);
		}
		if (h & 0x8000 || h >= 0x7c00)
			continue;
		double next = h == 0x7bff ? 65536 : half_value((uint16_t)(h + 1), 5);
		float middle = (float)((half_value((uint16_t)h, 5) + next) / 2);

		for (int step = -1; step <= 1; step++) {
			float x = f32_from_bits(f32_bits(middle) + (uint32_t)step);
			float y = f32_from_bits(f32_bits(f16_to_f32((uint16_t)h)) + (uint32_t)(step > 0));

			same_half(x, f16_from_f32(x), 5);
			same_half(-x, f16_from_f32(-x), 5);
			same_half(y, f16_from_f32(y), 5);
		}
	}
}

static void rounding_of_random_bits(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 300000; i++) {
		float x = f32_from_bits((uint32_t)rng_u64(1, 2, i));

		if (isnan(x)) {
			assert_true(isnan(bf16_to_f32(bf16_from_f32(x))));
			assert_true(isnan(f16_to_f32(f16_from_f32(x))));
			continue;
		}
		same_half(x, bf16_from_f32(x), 8);
		same_half(x, f16_from_f32(x), 5);
		x = (float)ldexp(rng_normal(3, 4, i), (int)(i % 40) - 26); /* where binary16 lives */
		same_half(x, f16_from_f32(x), 5);
	}
}

static void check_planes(uint32_t bits)
{
	uint16_t hi = plane_hi(bits);
	int16_t lo = plane_lo(bits);
	uint32_t back = plane_join(hi, lo);
	float x = f32_from_bits(bits);

	if (isnan(x)) {
		assert_int_equal(hi, 0x7fc0 | (bits >> 31) << 15);
		assert_int_equal(lo, 0);
		assert_int_equal(back, (bits & 0x80000000) | 0x7fc00000);
		return;
	}
	if (back != bits) {
		print_error("%08x came back as %08x\n", bits, back);
		fail();
	}
	if (isinf(x))
		assert_int_equal(lo, 0);
	/* hi is as near to x as the bf16 that rounds ties to even; at a tie it is the one away from zero */
	if (!isinf(x) && !isinf(bf16_to_f32(hi)) && !isinf(bf16_to_f32(bf16_from_f32(x)))) {
		double ours = fabs((double)bf16_to_f32(hi) - x);
		double even = fabs((double)bf16_to_f32(bf16_from_f32(x)) - x);

		assert_true(ours == even);
		if ((bits & 0xffff) == 0x8000)
			assert_true(fabs((double)bf16_to_f32(hi)) > fabs((double)x));
	}
}

static void planes_round_trip(void **state)
{
	static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x10000, 0x17fff, 0x18000,
	        0x3fffff, 0x400000, 0x7f7fff, 0x7f8000, 0x7fffff};

	(void)state;
	for (uint32_t top = 0; top < 512; top++) { /* sign and exponent */
		for (size_t i = 0; i < sizeof(low) / sizeof(*low); i++)
			check_planes(top << 23 | low[i]);
		for (uint32_t i = 0; i < 500; i++)
			check_planes(top << 23 | (uint32_t)(rng_u64(5, top, i) & 0x7fffff));
	}
	check_planes(0x7fffffff); /* the formula alone would give -0 */
	check_planes(0xffffffff);
	check_planes(0x7f7fffff); /* the largest finite number: hi is infinity, joining gives it back */
	assert_int_equal(plane_hi(0x7f7fffff), 0x7f80);
	assert_int_equal(plane_join(plane_hi(0x7f7fffff), plane_lo(0x7f7fffff)), 0x7f7fffff);
}

/* The known answers of the generator's authors (Random123, kat_vectors, philox4x32 10). */
static void rng_known_answers(void **state)
{
	(void)state;
	assert_true(rng_u64(0, 0, 0) == 0xe169c58d6627e8d5);
	assert_true(rng_u64(UINT64_MAX, UINT64_MAX, UINT64_MAX) == 0x41c83b0e408f276d);
	assert_true(
	        rng_u64(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) == 0x94fdccebd16cfe09);
}

static void rng_is_even(void **state)
{
	enum { COUNT = 200000, BINS = 10 };
	int bins[BINS] = {0}, ones[64] = {0};
	double sum = 0, square = 0, cube = 0, fourth = 0, uniform = 0, product = 0, last = 0;

	(void)state;
	for (uint64_t i = 0; i < COUNT; i++) {
		uint64_t bits = rng_u64(42, 7, i);
		double u = rng_uniform(42, 8, i), x = rng_normal(42, 9, i);

		for (int b = 0; b < 64; b++)
			ones[b] += bits >> b & 1;
		assert_true(u >= 0 && u < 1 && isfinite(x));
		uniform += u;
		sum += x, square += x * x, cube += x * x * x, fourth += x * x * x * x;
		product += x * last, last = x;
		bins[rng_below(42, 10, i, BINS)]++;
	}
	for (int b = 0; b < 64; b++) /* 5 standard deviations */
		assert_true(fabs(ones[b] - COUNT / 2.0) < 5 * sqrt(COUNT) / 2);
	for (int b = 0; b < BINS; b++)
		assert_true(fabs(bins[b] - COUNT / 10.0) < 5 * sqrt(COUNT * 0.09));
	assert_true(fabs(uniform / COUNT - 0.5) < 5 * sqrt(1 / 12.0 / COUNT));
	assert_true(fabs(sum / COUNT) < 5 / sqrt(COUNT));
	assert_true(fabs(square / COUNT - 1) < 5 * sqrt(2.0 / COUNT));
	assert_true(fabs(cube / COUNT) < 5 * sqrt(15.0 / COUNT));
	assert_true(fabs(fourth / COUNT - 3) < 5 * sqrt(96.0 / COUNT));
	assert_true(fabs(product / COUNT) < 5 / sqrt(COUNT));
}

/* Seed, stream and index each change half the bits, also when only their top bit differs. */
static void rng_mixes_every_input(void **state)
{
	(void)state;
	for (int which = 0; which < 3; which++) {
		for (int bit = 0; bit < 64; bit++) {
			int changed = 0;

			for (uint64_t i = 0; i < 50; i++) {
				uint64_t in[3] = {i * 977, i * 31, i};
				uint64_t before = rng_u64(in[0], in[1], in[2]);

				in[which] ^= 1ull << bit;
				changed += __builtin_popcountll(before ^ rng_u64(in[0], in[1], in[2]));
			}
			assert_true(abs(changed - 1600) < 6 * 28); /* deviation of 3200 coins: 28.3 */
		}
	}
}

static void rng_bounds(void **state)
{
	uint64_t most = 0;

	(void)state;
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t x = rng_below(1, 1, i, UINT64_MAX);

		most = x > most ? x : most;
		assert_true(rng_below(1, 1, i, 1) == 0);
		assert_true(rng_below(1, 1, i, 3) < 3);
	}
	assert_true(most > UINT64_MAX / 100 * 98);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(every_half),
	        cmocka_unit_test(rounding_at_every_midpoint),
	        cmocka_unit_test(rounding_of_random_bits),
	        cmocka_unit_test(planes_round_trip),
	        cmocka_unit_test(rng_known_answers),
	        cmocka_unit_test(rng_is_even),
	        cmocka_unit_test(rng_mixes_every_input),
	        cmocka_unit_test(rng_bounds),
	};

	return cmocka_run_group_tests_name("base_num", tests, NULL, NULL);
}
