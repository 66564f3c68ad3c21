/* links: optim */
/* also: usual */
/* Optimizer state in bf16 and 8 bits: rounding, the same bits in every instruction set; the list of planes.
 */
#include "check.h"

#include "base/num.h"
#include "optim/adamw.h"
#include "optim/plane.h"

#include <float.h>
#include <math.h>

/* The forms of AdamW's state: the same bits by every ISA and in pieces, stochastic rounding. */

enum { MOST = 16000, BLOCKS = MOST / ADAMW_BLOCK + 1 };

struct planes {
	uint16_t hi[MOST];
	int16_t lo[MOST];
	uint32_t m[MOST], v[MOST];
	float m_scale[BLOCKS], v_scale[BLOCKS];
};

static struct planes before, expected, got;
static uint32_t grad[MOST];

static const struct adamw_options usual = {
        .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1, .seed = 7};

static uint32_t any_bits(uint64_t seed, uint64_t i)
{
	uint64_t r = rng_u64(seed, 7, i);
	uint32_t bits = (uint32_t)r & 0x807fffff;

	switch (r >> 32 & 31) {
	case 0:
		return bits; /* subnormal */
	case 1:
		return bits & 0x80000000;
	case 2:
		return bits | 0x7f800000;
	case 3:
		return bits | (1 + (uint32_t)(r >> 40) % 3) << 23;
	default:
		return bits | (100 + (uint32_t)(r >> 40) % 40) << 23;
	}
}

static void fill(uint64_t seed, int64_t count)
{
	for (int64_t i = 0; i < count; i++) {
		uint32_t w = any_bits(seed, 4 * i);

		before.hi[i] = plane_hi(w);
		before.lo[i] = plane_lo(w);
		before.m[i] = any_bits(seed, 4 * i + 1);
		before.v[i] = any_bits(seed, 4 * i + 2) & 0x7fff7fff;
		grad[i] = any_bits(seed, 4 * i + 3);
	}
	for (int i = 0; i < BLOCKS; i++) {
		before.m_scale[i] = 1e-3f * (float)(1 + i % 5);
		before.v_scale[i] = 1e-6f * (float)(1 + i % 7);
	}
}

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

/* Pieces of `piece` elements (0: all at once), in descending order. */
static void update(
        struct planes *p, struct adamw_span s, const struct adamw_step *step, int64_t piece, int isa)
{
	int64_t count = s.count;

	memcpy(p, &before, sizeof(*p));
	s = span_of(p, s);
	if (piece == 0) {
		adamw_update(&s, step, isa);
		return;
	}
	for (int64_t first = (count - 1) / piece * piece; first >= 0; first -= piece) {
		struct adamw_span part = s;

		adamw_span_advance(&part, first);
		part.count = count - first < piece ? count - first : piece;
		adamw_update(&part, step, isa);
	}
}

static void check_case(struct adamw_span s, const struct adamw_step *step)
{
	enum adamw_isa found;

	update(&expected, s, step, 0, ADAMW_ISA_SCALAR);
	for (int isa = 0; isa < ADAMW_ISA_COUNT; isa++) {
		if (adamw_isa_find(&found, adamw_isa_name(isa)))
			continue;
		update(&got, s, step, 0, isa);
		assert_memory_equal(&got, &expected, sizeof(got));
		if (s.count > 0) {
			update(&got, s, step, s.state == ADAMW_STATE_8BIT ? ADAMW_BLOCK : 333, isa);
			assert_memory_equal(&got, &expected, sizeof(got));
		}
	}
}

static void test_bits_of_every_isa_and_piece(void **state)
{
	struct adamw_step steps[3];

	(void)state;
	adamw_step_init(&steps[0], &usual, 1e-3, 1, 1);
	adamw_step_init(&steps[1], &usual, 1e-3, 1000000, 0.37);
	adamw_step_init(&steps[2], &usual, 1e-3, 5, 0x1p-100);
	for (int i = 0; i < 12 * 128 + 48; i++) {
		struct adamw_span s = {.count = i / 12,
		        .decay = i & 1,
		        .grad_dtype = i >> 1 & 1 ? DTYPE_F32 : DTYPE_BF16,
		        .state = (enum adamw_state)(i % ADAMW_STATE_COUNT),
		        .tensor = i % 11};

		if (s.count > 127)
			s.count = 1000 + 301 * (i % 48);
		if (s.state != ADAMW_STATE_8BIT)
			s.first = (INT64_C(1) << (i % 41)) + i;
		fill((uint64_t)i, s.count);
		check_case(s, &steps[i % 5 % 3]);
	}
}

/* A finite gradient, however large, leaves state that is finite and not subnormal. */
static void test_state_stays_finite_and_normal(void **state)
{
	struct adamw_step step;

	(void)state;
	adamw_step_init(&step, &usual, 1e-3, 1, 1);
	for (int kind = 0; kind < 2; kind++) {
		struct adamw_span s = {
		        .count = 4096, .grad_dtype = DTYPE_F32, .state = (enum adamw_state)kind};

		fill(3, s.count);
		for (int i = 0; i < 4096; i++) {
			before.m[i] = before.v[i] = 0;
			grad[i] = rng_u64(1, 1, i) % 0x7f800000;
		}
		for (int isa = 0; isa < ADAMW_ISA_COUNT; isa++) {
			enum adamw_isa found;

			if (adamw_isa_find(&found, adamw_isa_name(isa)))
				continue;
			update(&got, s, &step, 0, isa);
			for (int i = 0; i < 4096; i++) {
				float m =
				        kind ? bf16_to_f32(((uint16_t *)got.m)[i]) : f32_from_bits(got.m[i]);
				float v =
				        kind ? bf16_to_f32(((uint16_t *)got.v)[i]) : f32_from_bits(got.v[i]);

				assert_true(isfinite(m) && (m == 0 || fabsf(m) >= FLT_MIN));
				assert_true(isfinite(v) && (v == 0 || v >= FLT_MIN));
			}
		}
	}
}

static void test_rounding_by_definition(void **state)
{
	(void)state;
	for (uint32_t random = 0; random < 0x10000; random += 0x101) {
		uint32_t low = random * 40503u & 0xffff;

		assert_int_equal(adamw_round(f32_from_bits(0x3f800000 | low), random),
		        0x3f80 + (low + random > 0xffff));
		assert_int_equal(adamw_round(f32_from_bits(0xbf800000 | low), random),
		        0xbf80 + (low + random > 0xffff));
		assert_int_equal(adamw_round(f32_from_bits(0x7f7fffff), random), 0x7f7f);
		assert_int_equal(adamw_round(-INFINITY, random), 0xff7f);
		assert_int_equal(adamw_round(NAN, random), 0x7fc0);
		assert_int_equal(adamw_round(0, random), 0);
		assert_true(adamw_round(f32_from_bits(0x007fffff), random) == (random ? 0x0080 : 0));
	}
}

/* Of 16 bits, with mean 0 and deviation 1. */
static double uniform(uint32_t bits)
{
	return ((bits + 0.5) / 65536 - 0.5) * sqrt(12);
}

/* Uniform; independent of other places, other rows and the update before, which is to say over many keys:
 * means and correlations within 5 standard deviations. Places share their rows' words and rows their places',
 * so the samples of a correlation are fewer than the elements. */
static void test_random_bits(void **state)
{
	enum { KEYS = 256, N = 4 * ADAMW_ROW, LAGS = 6 };
	static const int lags[LAGS] = {1, 2, 64, ADAMW_ROW, 4096, 65536};
	double sums[4 + LAGS] = {0};

	(void)state;
	for (uint64_t k = 0; k < KEYS; k++) {
		struct adamw_keys keys = adamw_keys_of(rng_u64(7, 1, k), 3),
		                  other = adamw_keys_of(rng_u64(7, 1, k + 1), 3);

		for (int64_t i = 0; i < N; i++) {
			uint32_t r = adamw_random(keys, i);
			double m = uniform(r & 0xffff), v = uniform(r >> 16);

			sums[0] += m;
			sums[1] += v;
			sums[2] += m * v;
			sums[3] += m * uniform(adamw_random(other, i) & 0xffff);
			for (int l = 0; l < LAGS; l++)
				sums[4 + l] += m * uniform(adamw_random(keys, i + lags[l]) & 0xffff);
		}
	}
	for (int j = 0; j < 4 + LAGS; j++) {
		double samples = j >= 7 || j == 3 ? KEYS * 4 : KEYS * ADAMW_ROW;

		if (!(fabs(sums[j] / KEYS / N) < 5 / sqrt(samples)))
			fail_msg("sum %d: %g", j, sums[j] / KEYS / N);
	}
}

/* The mean over many updates of what is kept is what was computed: v decays by a thousandth at a time, which
 * no rounding to nearest would let it do. */
static void test_rounding_is_unbiased(void **state)
{
	enum { N = 4096, STEPS = 500 };
	struct adamw_span s = {.count = N, .state = ADAMW_STATE_BF16};
	enum adamw_isa isa = 0;
	double sum = 0;

	(void)state;
	check_ok(adamw_isa_find(&isa, "auto"));
	memset(&before, 0, sizeof(before));
	memset(grad, 0, sizeof(grad));
	for (int i = 0; i < N; i++)
		((uint16_t *)before.v)[i] = 0x3f80;
	memcpy(&got, &before, sizeof(got));
	s = span_of(&got, s);
	for (int t = 1; t <= STEPS; t++) {
		struct adamw_step step;

		adamw_step_init(&step, &usual, 1e-3, t, 1);
		adamw_update(&s, &step, isa);
	}
	for (int i = 0; i < N; i++)
		sum += bf16_to_f32(((uint16_t *)got.v)[i]) / N;
	/* a step adds less than 2^-8 * sqrt(0.1) to the deviation of one */
	if (!(fabs(sum / pow(0.999, STEPS) - 1) < 5 * 0x1p-8 * sqrt(0.1 * STEPS / N)))
		fail_msg("mean %g, expected %g", sum, pow(0.999, STEPS));
}

/* The list of planes, and its consequences for every format of the state. */
static void test_planes(void **state)
{
	(void)state;
	for (int p = 0; p < PLANE_COUNT; p++) {
		enum plane plane = (enum plane)p;
		unsigned bit = 1u << p;

		if (!plane_name(plane) || !*plane_name(plane) || !plane_title(plane) || !*plane_title(plane))
			fail_msg("plane %d has no name or no title", p);
		if (!!(bit & PLANES_WEIGHT) + !!(bit & PLANES_MOMENT) + !!(bit & PLANES_SCALE) !=
		        plane_is_in(plane, PLANES_SAVED))
			fail_msg(
			        "plane %s is no weight, moment or scale, or of two kinds", plane_name(plane));
	}
	assert_int_equal(PLANES_WEIGHT, 1 << PLANE_HI | 1 << PLANE_LO);
	for (int f = 0; f < ADAMW_STATE_COUNT; f++) {
		enum adamw_state format = (enum adamw_state)f;
		enum plane order[PLANE_SAVED_COUNT];
		unsigned met = 0;

		plane_file_order(order, format);
		for (int i = 0; i < PLANE_SAVED_COUNT; i++) {
			if (i && plane_width(order[i - 1], format) < plane_width(order[i], format))
				fail_msg("%s: plane %s comes before the wider %s", adamw_state_name(format),
				        plane_name(order[i - 1]), plane_name(order[i]));
			met |= 1u << order[i];
		}
		assert_int_equal(met, PLANES_SAVED); /* each once */
		assert_int_equal(plane_dtype(PLANE_GRADIENT, format, DTYPE_BF16), DTYPE_BF16);
		assert_int_equal(plane_width(PLANE_M, format), adamw_state_bytes(format));
	}
}

/* The order of files since the first version: a checkpoint's bytes do not change. */
static void test_file_order(void **state)
{
	static const enum plane wide[] = {PLANE_M, PLANE_V, PLANE_HI, PLANE_LO};
	static const enum plane narrow[] = {
	        PLANE_M_SCALE, PLANE_V_SCALE, PLANE_HI, PLANE_LO, PLANE_M, PLANE_V};

	(void)state;
	for (int f = 0; f < ADAMW_STATE_COUNT; f++) {
		enum plane order[PLANE_SAVED_COUNT];
		const enum plane *wanted = adamw_state_has_scales((enum adamw_state)f) ? narrow : wide;

		plane_file_order(order, (enum adamw_state)f);
		for (int i = 0; i < PLANE_SAVED_COUNT; i++)
			if (plane_is_in(order[i], planes_of((enum adamw_state)f)))
				assert_int_equal(order[i], *wanted++);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_planes),
	        cmocka_unit_test(test_file_order),
	        cmocka_unit_test(test_bits_of_every_isa_and_piece),
	        cmocka_unit_test(test_state_stays_finite_and_normal),
	        cmocka_unit_test(test_rounding_by_definition),
	        cmocka_unit_test(test_random_bits),
	        cmocka_unit_test(test_rounding_is_unbiased),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
