/* The square root and the quotient in AdamW's kernels round to nearest, although they skip tests for
 * special arguments.
 *
 * They start from an approximation; the test takes all that PTX's bounds allow. It tries all significands
 * for the root. For each divisor, it tries the dividends with a quotient closest to the middle of two
 * floats.
 */
#include "tests/check.h"

#include "tests/simt/exact.h"

#include <math.h>
#include <stdint.h>

static float f32(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, 4);
	return x;
}

/* The units-th float behind x > 0. */
static float f32_moved(float x, int units)
{
	uint32_t bits;

	memcpy(&bits, &x, 4);
	return f32(bits + (uint32_t)units);
}

static void test_root(void **state)
{
	int wrong = 0;

	(void)state;
	for (uint32_t significand = 0; significand < 1 << 24; significand++) { /* of two powers of two */
		float v = f32((126u << 23) + significand), right = sqrtf(v);
		double exact = 1 / sqrt((double)v);

		for (int units = -2; units <= 2; units++) {
			float root = f32_moved((float)exact, units);

			if (fabs(root / exact - 1) > exp2(-22.9) || exact_root(v, root) == right)
				continue;
			/* the two of which the nearest must come */
			assert_true(units == 1 && (v == 0x1.dd26e4p-1f || v == 0x1.f82294p+0f));
			wrong++;
		}
	}
	assert_int_equal(wrong, 2);
}

/* a 2^shift = (2 q + 1) b + off for a significand a, an odd number 2 q + 1 of 25 bits and a small `off`: a /
 * b is close to the middle between q and q + 1. Off by 3 and more, no rounding of the quotient's terms
 * reaches it. Returns a, or 0. At most two such numbers are there; `upper` takes the larger. */
static uint32_t hard_dividend(uint32_t b, int shift, int off, int upper)
{
	int even = __builtin_ctz(b), known;
	uint64_t odd = b >> even, inverse = odd, middle, product;

	if (even > 1 || (off & ((1 << even) - 1)))
		return 0;
	for (int i = 0; i < 6; i++)
		inverse *= 2 - odd * inverse;
	known = shift - even;
	middle = ((uint64_t)(-(int64_t)off >> even) * inverse) & ((UINT64_C(1) << known) - 1);
	if (known < 25)
		middle |= UINT64_C(1) << 24;
	if (known < 24 && upper)
		middle |= UINT64_C(1) << 23;
	product = middle * b + (uint64_t)(int64_t)off;
	if (middle >> 24 != 1 || middle % 2 == 0 || product & ((UINT64_C(1) << shift) - 1))
		return 0;
	product >>= shift;
	return product >> 23 == 1 ? (uint32_t)product : 0;
}

static void quotient_try(uint32_t a, uint32_t b)
{
	double exact = 1 / (double)b, unit = f32_moved((float)exact, 1) - (double)(float)exact;

	for (int units = -2; units <= 2; units++) {
		float inverse = f32_moved((float)exact, units);

		if (fabs(inverse - exact) <= unit &&
		        exact_quotient((float)a, (float)b, inverse) != (float)a / (float)b)
			assert_true(a == 1 << 23 && b == (1 << 24) - 1); /* as the header says */
	}
}

static void test_quotient(void **state)
{
	static const int offs[] = {-2, -1, 1, 2};
	int64_t hard = 0;

	(void)state;
	for (uint32_t b = 1 << 23; b < 1 << 24; b++) {
		for (int at = 0; at < 16; at++) {
			uint32_t a = hard_dividend(b, 24 + at / 4 % 2, offs[at % 4], at / 8);

			if (a) {
				quotient_try(a, b);
				hard++;
			}
		}
		quotient_try(1 << 23, b);
		quotient_try((1 << 23) + (b * 0x9e3779b9u >> 9), b);
	}
	assert_true(hard > 1 << 23);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_root),
	        cmocka_unit_test(test_quotient),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
