/* links: optim */
/* also: usual */
/* Optimizer state in 8 bits: numbers of codes, the nearest code, scales, and blocks against fp64. */
#include "check.h"

#include "base/num.h"
#include "optim/adamw.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { MOST = 1024, BLOCKS = MOST / ADAMW_BLOCK };

static struct planes {
	uint16_t hi[MOST];
	int16_t lo[MOST];
	uint8_t m[MOST], v[MOST];
	float m_scale[BLOCKS], v_scale[BLOCKS];
} before, got;
static uint32_t grad[MOST];

static const struct adamw_options usual = {
        .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1, .seed = 7};

static struct adamw_span span_of(struct planes *p, struct adamw_span s)
{
	s.hi = p->hi;
	s.lo = p->lo;
	s.m = p->m;
	s.v = p->v;
	s.m_scale = p->m_scale;
	s.v_scale = p->v_scale;
	s.grad = grad;
	return s;
}

/* `got` is `before` after an update. */
static void update(struct adamw_span s, const struct adamw_step *step, int isa)
{
	got = before;
	s = span_of(&got, s);
	adamw_update(&s, step, (enum adamw_isa)isa);
}

/* The numbers of m's codes and of r's, in double and without bits. */
static double number_of(int is_m, int code)
{
	int number = (int8_t)code, size = is_m ? abs(number) : code + 1;

	if (!is_m)
		return ldexp(1 + size % 32 / 32.0, size / 32 - 8) - 0x1p-8;
	return copysign(ldexp(1 + size % 8 / 8.0, size / 8 - 16) - 0x1p-16, number);
}

/* Of a block with scale 1. */
static int encode(int is_m, float x)
{
	return is_m ? adamw_encode_m(x, 1, ADAMW_NEAREST_M) : adamw_encode_r(x, 1, ADAMW_NEAREST_R);
}

static void test_numbers_of_codes(void **state)
{
	(void)state;
	for (int code = 0; code < 256; code++) {
		double m = number_of(1, code), r = number_of(0, code);

		assert_true(adamw_decode_m((uint8_t)code, 1) == m);
		assert_true(adamw_decode_r((uint8_t)code, 1) == (float)(r * r));
		for (uint32_t offset = 0; offset < 1 << 18; offset += 0x1111) { /* it stays where it is */
			assert_int_equal(adamw_encode_m((float)m, 1, 4 * offset), code);
			assert_int_equal(adamw_encode_r((float)r, 1, offset), code);
		}
		if ((int8_t)code > -128)
			assert_true(m > number_of(1, code - 1));
		assert_true(code == 0 || r > number_of(0, code - 1));
		assert_true(adamw_decode_m((uint8_t)code, 0) == 0 && adamw_decode_r((uint8_t)code, 0) == 0);
		assert_true(isnan(adamw_decode_m((uint8_t)code, NAN)));
		assert_true(isnan(adamw_decode_r((uint8_t)code, NAN)));
	}
	assert_true(number_of(1, 0) == 0 && number_of(0, 0) == 0x1p-13);
	assert_true(number_of(1, 127) == ADAMW_TOP_M && number_of(0, 255) == ADAMW_TOP_R);
}

/* x has the code of the nearest number: of all 256 none is nearer by more than fp32 tells apart. */
static void check_nearest(int is_m, float x)
{
	int code = encode(is_m, x);
	double error = fabs(number_of(is_m, code) - x);

	for (int other = 0; other < 256; other++)
		if (fabs(number_of(is_m, other) - x) < error - 0x1p-23 * (fabs(x) + 0x1p-8))
			fail_msg("%s %a has code %d, not %d", is_m ? "m" : "r", (double)x, code, other);
}

static void test_nearest_code(void **state)
{
	(void)state;
	for (int is_m = 0; is_m < 2; is_m++) {
		for (int i = 0; i < 40000; i++) {
			float x = (float)(ldexp(1 + (double)rng_below(3, 1, i, 1 << 23) / (1 << 23),
			        -1 - (int)rng_below(3, 2, i, 24)));

			check_nearest(is_m, is_m && i & 1 ? -x : x);
		}
		for (int code = 0; code < 255; code++) /* on each side of a border */
			for (int ulps = -3; ulps <= 3; ulps++) {
				double low = number_of(is_m, code),
				       high = number_of(is_m, is_m && code >= 128 ? code - 1 : code + 1);

				if (code != 127 || !is_m)
					check_nearest(
					        is_m, f32_from_bits(f32_bits((float)((low + high) / 2)) +
					                            (uint32_t)ulps));
			}
	}
	assert_int_equal(encode(1, 0), 0);
	assert_int_equal(encode(1, -0.0f), 0);
	assert_int_equal(encode(0, 0), 0);
	assert_int_equal(encode(1, INFINITY), 127);
	assert_int_equal(encode(1, -INFINITY), 128);
	assert_int_equal(encode(0, INFINITY), 255);
	assert_int_equal(encode(1, NAN), 127);
	assert_int_equal(encode(0, NAN), 255);
}

/* The largest of a block is the largest number; sizes that have no scale of their own. */
static void test_scales(void **state)
{
	float top[] = {ADAMW_TOP_R, ADAMW_TOP_M};

	(void)state;
	for (int i = 0; i < 20000; i++)
		for (int is_m = 0; is_m < 2; is_m++) {
			float x = (float)(ldexp(1 + (double)rng_below(4, 1, i, 1 << 23) / (1 << 23),
			        (int)rng_below(4, 2, i, 110) - 49));
			float scale = adamw_scale(f32_bits(x), top[is_m]), inverse = adamw_inverse(scale);

			assert_true(fabs(scale * (double)top[is_m] / x - 1) < 0x1p-22);
			if (is_m) {
				assert_int_equal(adamw_encode_m(x, inverse, ADAMW_NEAREST_M), 127);
				assert_int_equal(adamw_encode_m(-x, inverse, ADAMW_NEAREST_M), 129);
			} else {
				assert_int_equal(adamw_encode_r(x, inverse, ADAMW_NEAREST_R), 255);
			}
		}
	assert_true(adamw_scale(0, ADAMW_TOP_R) == 0);
	assert_true(adamw_scale(1, ADAMW_TOP_R) == 0x1p-50f);
	assert_true(adamw_scale(f32_bits(INFINITY), ADAMW_TOP_M) == 0x1p63f);
	assert_int_equal(f32_bits(adamw_scale(0x7fffffff, ADAMW_TOP_M)), 0x7fc00000);
	assert_true(adamw_decode_r(0, 0x1p-50f) == FLT_MIN); /* v above 0 stays above 0 */
	assert_true(isfinite(adamw_decode_r(255, 0x1p63f)));
}

static double rounded(int is_m, float x, const struct adamw_step *s, int64_t element)
{
	return is_m ? number_of(1, adamw_encode_m(x, 1, adamw_offset_m(s, element)))
	            : number_of(0, adamw_encode_r(x, 1, adamw_offset_r(s, element)));
}

/* What is added before the cut: over steps, and over the neighbours of one step, the mean is m or r. */
static void test_offsets_are_even(void **state)
{
	enum { STEPS = 2048 };

	(void)state;
	for (int i = 0; i < 400; i++) {
		int is_m = i & 1;
		float x = (float)(rng_below(5, 1, i, 1 << 20) + 1) * 0x1p-20f;
		double step = is_m ? (x + 0x1p-16) / 8 : (x + 0x1p-8) / 32, over_steps = 0,
		       over_neighbours = 0;

		for (int t = 1; t <= STEPS; t++) {
			struct adamw_step s;

			adamw_step_init(&s, &usual, 1e-3, t + 1000 * i, 1);
			over_steps += rounded(is_m, x, &s, i) / STEPS;
			for (int k = 0; k < ADAMW_OFFSETS && t == 1; k++)
				over_neighbours += rounded(is_m, x, &s, k) / ADAMW_OFFSETS;
		}
		if (x > (is_m ? ADAMW_TOP_M : ADAMW_TOP_R) || x < 0x1p-13f)
			continue;
		assert_true(fabs(over_steps - x) < 2e-3 * step);
		assert_true(fabs(over_neighbours - x) < step / ADAMW_OFFSETS);
	}
}

/* m and r are not rounded up together: their offsets do not correlate. */
static void test_offsets_differ(void **state)
{
	enum { STEPS = 2048 };
	double over_steps = 0, over_neighbours = 0;

	(void)state;
	for (int t = 1; t <= STEPS; t++) {
		struct adamw_step s;

		adamw_step_init(&s, &usual, 1e-3, t, 1);
		for (int k = 0; k < (t == 1 ? ADAMW_OFFSETS : 1); k++) {
			double both = (ldexp(adamw_offset_m(&s, k), -20) - 0.5) *
			              (ldexp(adamw_offset_r(&s, k), -18) - 0.5) * 12;

			over_neighbours += t == 1 ? both / ADAMW_OFFSETS : 0;
			over_steps += k == 0 ? both / STEPS : 0;
		}
	}
	assert_true(fabs(over_steps) < 0.01);
	assert_true(fabs(over_neighbours) < 0.2);
}

/* Where one code ends and the next begins, to the last bit: each ISA's codes are those of the definition.
 * With betas of 0 m is the gradient and r its size. */
static void test_codes_at_every_border(void **state)
{
	const struct adamw_options plain = {.epsilon = 1e-8};
	struct adamw_step step;

	(void)state;
	for (int round = 0; round < 2 * 9; round++) {
		struct adamw_span s = {.count = 256, .grad_dtype = DTYPE_F32, .state = ADAMW_STATE_8BIT};
		int is_m = round & 1, ulps = round / 2 - 4;

		adamw_step_init(&step, &plain, 1e-3, 1 + round, 1);
		memset(&before, 0, sizeof(before));
		grad[0] = f32_bits(is_m ? ADAMW_TOP_M : ADAMW_TOP_R); /* a scale of 1 */
		for (int i = 1; i < 256; i++) {
			double border =
			        is_m ? number_of(1, i % 128) - ldexp(adamw_offset_m(&step, i), -20) *
			                                               (number_of(1, i % 128) -
			                                                       number_of(1, (i + 127) % 128))
			             : number_of(0, i) - ldexp(adamw_offset_r(&step, i), -18) *
			                                         (number_of(0, i) - number_of(0, i - 1));

			grad[i] = f32_bits((float)border) + (uint32_t)ulps;
			grad[i] ^= is_m && i > 127 ? 0x80000000 : 0;
		}
		for (int isa = 0; isa < ADAMW_ISA_COUNT; isa++) {
			enum adamw_isa found;

			if (adamw_isa_find(&found, adamw_isa_name(isa)))
				continue;
			update(s, &step, isa);
			assert_true(is_m ? got.m_scale[0] == 1 : got.v_scale[0] == 1);
			for (int i = 0; i < 256; i++) {
				float g = f32_from_bits(grad[i]);

				assert_int_equal(got.m[i], adamw_encode_m(g, adamw_inverse(got.m_scale[0]),
				                                   adamw_offset_m(&step, i)));
				assert_int_equal(
				        got.v[i], adamw_encode_r(sqrtf(g * g), adamw_inverse(got.v_scale[0]),
				                          adamw_offset_r(&step, i)));
			}
		}
	}
}

/* A block by the definition in double: m and r to one of their neighbours. */
static void test_8bit_block(void **state)
{
	struct adamw_step step;
	struct adamw_span s = {.count = 300, .grad_dtype = DTYPE_F32, .state = ADAMW_STATE_8BIT};

	(void)state;
	adamw_step_init(&step, &usual, 1e-3, 3, 1);
	memset(&before, 0, sizeof(before));
	for (int i = 0; i < 300; i++) {
		before.m[i] = (uint8_t)(i * 7);
		before.v[i] = (uint8_t)(i * 5);
		before.hi[i] = 0x3c00;
		grad[i] = f32_bits((float)rng_normal(1, 2, i) * 1e-3f);
	}
	before.m_scale[0] = before.m_scale[1] = before.v_scale[0] = before.v_scale[1] = 1e-3f;
	update(s, &step, ADAMW_ISA_SCALAR);
	for (int block = 0; block < 2; block++) {
		int first = block * ADAMW_BLOCK, end = block ? 300 : ADAMW_BLOCK;
		double m_scale = got.m_scale[block], r_scale = got.v_scale[block], top_m = 0, top_r = 0;

		for (int i = first; i < end; i++) {
			double g = f32_from_bits(grad[i]), r = 1e-3 * number_of(0, before.v[i]);
			double m = 0.9 * 1e-3 * number_of(1, before.m[i]) + 0.1 * g;

			r = sqrt(0.999 * r * r + 0.001 * g * g);
			top_m = fmax(top_m, fabs(m));
			top_r = fmax(top_r, r);
			assert_true(fabs(m_scale * number_of(1, got.m[i]) - m) <=
			            (fabs(m) + 0x1p-16 * m_scale) / 8 * 1.00001);
			assert_true(fabs(r_scale * number_of(0, got.v[i]) - r) <=
			            (r + 0x1p-8 * r_scale) / 32 * 1.00001);
		}
		assert_true(fabs(m_scale * ADAMW_TOP_M / top_m - 1) < 1e-5);
		assert_true(fabs(r_scale * ADAMW_TOP_R / top_r - 1) < 1e-5);
	}
}

/* State of zeros in `got`. */
static struct adamw_span empty_span(int64_t count, enum adamw_isa *isa)
{
	check_ok(adamw_isa_find(isa, "auto"));
	memset(&before, 0, sizeof(before));
	memcpy(&got, &before, sizeof(got));
	return span_of(&got,
	        (struct adamw_span){.count = count, .grad_dtype = DTYPE_F32, .state = ADAMW_STATE_8BIT});
}

/* v decays by a thousandth at a time, less than half a code: it does so all the same, in a block with
 * gradients that stay large. */
static void test_v_follows_its_gradients(void **state)
{
	enum { N = 1024, STEPS = 3000 };
	enum adamw_isa isa = 0;
	struct adamw_span s = empty_span(N, &isa);
	double v = 0, sum = 0;

	(void)state;
	for (int t = 1; t <= STEPS; t++) {
		double small = t <= STEPS / 3 ? 1 : 0.01;
		struct adamw_step step;

		for (int i = 0; i < N; i++)
			grad[i] = f32_bits((float)(i % 2 ? small : 1));
		v += 0.001 * (small * small - v);
		adamw_step_init(&step, &usual, 1e-3, t, 1);
		adamw_update(&s, &step, isa);
	}
	for (int i = 1; i < N; i += 2) {
		double stored = adamw_decode_r(got.v[i], got.v_scale[i / ADAMW_BLOCK]);

		assert_true(fabs(sqrt(stored / v) - 1) < 0.15);
		sum += sqrt(stored / v) / (N / 2);
	}
	if (!(fabs(sum - 1) < 0.08))
		fail_msg("r is %g of what it should be", sum);
}

/* m moves by a tenth of its distance from the gradient, less than half a code: it reaches the gradient all
 * the same. */
static void test_m_follows_its_gradients(void **state)
{
	enum { N = 1024, STEPS = 400, LAST = 100 };
	enum adamw_isa isa = 0;
	struct adamw_span s = empty_span(N, &isa);
	double sum = 0;

	(void)state;
	for (int t = 1; t <= STEPS; t++) {
		struct adamw_step step;

		for (int i = 0; i < N; i++)
			grad[i] = f32_bits(i % 2 && t > STEPS / 2 ? 0.6f : 1.0f);
		adamw_step_init(&step, &usual, 1e-3, t, 1);
		adamw_update(&s, &step, isa);
		for (int i = 1; i < N && t > STEPS - LAST; i += 2)
			sum += adamw_decode_m(got.m[i], got.m_scale[i / ADAMW_BLOCK]) / 0.6f / (N / 2 * LAST);
	}
	if (!(fabs(sum - 1) < 2e-3))
		fail_msg("m is %g of what it should be", sum);
}

/* A v far below the largest of its block stays above 0. Otherwise the rest of m would be divided by
 * epsilon when gradients end. */
static void test_small_v_makes_no_large_step(void **state)
{
	struct adamw_span s = {.count = 256, .grad_dtype = DTYPE_F32, .state = ADAMW_STATE_8BIT};
	struct adamw_step step;
	float first, second;

	(void)state;
	memset(&before, 0, sizeof(before));
	for (int i = 0; i < 256; i++) {
		before.hi[i] = 0x3f80;
		grad[i] = f32_bits(i ? 1e-5f : 1.0f);
	}
	adamw_step_init(&step, &usual, 1e-3, 1, 1);
	update(s, &step, ADAMW_ISA_SCALAR);
	first = f32_from_bits(plane_join(got.hi[1], got.lo[1]));
	memcpy(&before, &got, sizeof(got));
	memset(grad, 0, sizeof(grad));
	adamw_step_init(&step, &usual, 1e-3, 2, 1);
	update(s, &step, ADAMW_ISA_SCALAR);
	second = f32_from_bits(plane_join(got.hi[1], got.lo[1]));
	assert_true(first < 1);
	if (!(fabsf(second - first) <= 1.1e-3f))
		fail_msg("a step of %g at a learning rate of 1e-3", (double)(first - second));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_numbers_of_codes),
	        cmocka_unit_test(test_nearest_code),
	        cmocka_unit_test(test_scales),
	        cmocka_unit_test(test_offsets_are_even),
	        cmocka_unit_test(test_offsets_differ),
	        cmocka_unit_test(test_codes_at_every_border),
	        cmocka_unit_test(test_8bit_block),
	        cmocka_unit_test(test_v_follows_its_gradients),
	        cmocka_unit_test(test_m_follows_its_gradients),
	        cmocka_unit_test(test_small_v_makes_no_large_step),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
