/* links: optim */
/* also: usual */
/* Conversion of optimizer state between formats: the same values as an update stores. */
#include "check.h"

#include "base/num.h"
#include "optim/adamw_convert.h"

#include <float.h>
#include <math.h>

enum { COUNT = 5 * ADAMW_BLOCK + 77, BLOCKS = 6 };

struct stored {
	float x[COUNT], scale[BLOCKS];
	float words[COUNT]; /* room for any form */
};

/* Many sizes in one block, zeros, subnormals; v without signs. */
static void values_fill(struct stored *s, uint64_t seed, enum adamw_moment moment)
{
	for (int i = 0; i < COUNT; i++) {
		float x = (float)(rng_normal(seed, 1, (uint64_t)i) *
		                  exp2(-(double)rng_below(seed, 2, (uint64_t)i, 40)));

		if (rng_below(seed, 3, (uint64_t)i, 20) == 0)
			x = 0;
		if (rng_below(seed, 4, (uint64_t)i, 50) == 0)
			x = 0x1p-130f;
		if (i / ADAMW_BLOCK == 2)
			x *= 0x1p-100f;
		if (i / ADAMW_BLOCK == 3)
			x = 0;
		s->x[i] = moment == ADAMW_MOMENT_V ? fabsf(x) : x;
	}
	s->x[ADAMW_BLOCK] = FLT_MAX; /* rounds to no infinity */
}

/* The farthest that an element of 8 bits is from x; most: the largest x of its block. */
static double farthest(double x, double most, enum adamw_moment moment)
{
	double scale, r = sqrt(x), error;

	if (moment == ADAMW_MOMENT_M) {
		scale = fmax(most / ADAMW_TOP_M, ADAMW_LEAST_SCALE);
		return (fabs(x) + 0x1p-16 * scale) / 16 * 1.0001;
	}
	scale = fmax(sqrt(most) / ADAMW_TOP_R, ADAMW_LEAST_SCALE);
	error = fmax((r + 0x1p-8 * scale) / 64, 0x1p-13 * scale) * 1.0001; /* there is no 0 */
	return (2 * r + error) * error;
}

static void test_distance(void **state)
{
	static struct stored s;
	static float back[COUNT];

	(void)state;
	for (int moment = ADAMW_MOMENT_M; moment <= ADAMW_MOMENT_V; moment++)
		for (int form = ADAMW_STATE_F32; form < ADAMW_STATE_COUNT; form++) {
			values_fill(&s, (uint64_t)form + 10, (enum adamw_moment)moment);
			if (form == ADAMW_STATE_8BIT)
				s.x[ADAMW_BLOCK] = 1e18f;
			adamw_state_narrow(s.words, s.scale, s.x, COUNT, (enum adamw_state)form,
			        (enum adamw_moment)moment);
			adamw_state_widen(back, s.words, s.scale, COUNT, (enum adamw_state)form,
			        (enum adamw_moment)moment);
			for (int i = 0; i < COUNT; i++) {
				double most = 0, error = fabs((double)back[i] - s.x[i]);

				for (int j = i / ADAMW_BLOCK * ADAMW_BLOCK;
				        j < COUNT && j / ADAMW_BLOCK == i / ADAMW_BLOCK; j++)
					most = fmax(most, fabsf(s.x[j]));
				most = form == ADAMW_STATE_8BIT
				               ? farthest(s.x[i], most, (enum adamw_moment)moment)
				       : form == ADAMW_STATE_BF16 ? fmax(0x1p-8 * fabsf(s.x[i]), FLT_MIN)
				                                  : 0;
				if (!(error <= most))
					fail_msg("moment %d, form %d, element %d: %g became %g", moment, form,
					        i, (double)s.x[i], (double)back[i]);
			}
		}
}

/* bf16: to the nearer neighbour, ties to even, against the three candidates. */
static void test_nearest(void **state)
{
	static struct stored s;

	(void)state;
	values_fill(&s, 5, ADAMW_MOMENT_M);
	for (int i = 0; i < COUNT; i += 3) /* exact ties */
		s.x[i] = f32_from_bits((f32_bits(s.x[i]) & 0xffff0000) | 0x8000);
	adamw_state_narrow(s.words, s.scale, s.x, COUNT, ADAMW_STATE_BF16, ADAMW_MOMENT_M);
	for (int i = 0; i < COUNT; i++) {
		uint16_t got = ((const uint16_t *)s.words)[i];
		double x = s.x[i], error = fabs((double)bf16_to_f32(got) - x);

		if (fabs(x) < FLT_MIN) {
			assert_int_equal(got, 0);
			continue;
		}
		assert_true(isfinite(bf16_to_f32(got)));
		for (int next = -1; next <= 1; next += 2) {
			double other = fabs((double)bf16_to_f32((uint16_t)(got + next)) - x);

			if (!isfinite(other))
				continue;
			assert_true(error < other || (error == other && got % 2 == 0));
		}
	}
}

/* With beta 0, an update stores the counted gradient and its square. */
static void test_as_an_update_stores_it(void **state)
{
	static struct stored m, v;
	static uint16_t hi[COUNT];
	static int16_t lo[COUNT];
	static uint8_t m_codes[COUNT], v_codes[COUNT];
	static float m_scale[BLOCKS], v_scale[BLOCKS];
	struct adamw_options o = {0, 0, 1e-8, 0, 1};
	struct adamw_step step;
	struct adamw_span span = {.hi = hi,
	        .lo = lo,
	        .m = m_codes,
	        .v = v_codes,
	        .m_scale = m_scale,
	        .v_scale = v_scale,
	        .grad = m.x,
	        .count = COUNT,
	        .grad_dtype = DTYPE_F32,
	        .state = ADAMW_STATE_8BIT};

	(void)state;
	values_fill(&m, 6, ADAMW_MOMENT_M);
	adamw_step_init(&step, &o, 1e-3, 1, 1);
	for (int i = 0; i < COUNT; i++) {
		m.x[i] = fabsf(m.x[i]) < step.least_grad ? 0 : m.x[i];
		v.x[i] = fminf(m.x[i] * m.x[i], FLT_MAX);
	}
	adamw_update(&span, &step, ADAMW_ISA_SCALAR);
	adamw_state_narrow(m.words, m.scale, m.x, COUNT, ADAMW_STATE_8BIT, ADAMW_MOMENT_M);
	adamw_state_narrow(v.words, v.scale, v.x, COUNT, ADAMW_STATE_8BIT, ADAMW_MOMENT_V);
	for (int i = 0; i < COUNT; i++) { /* to nearest, or to the other neighbour */
		assert_true(abs(((const int8_t *)m.words)[i] - (int8_t)m_codes[i]) <= 1);
		assert_true(abs(((const uint8_t *)v.words)[i] - v_codes[i]) <= 1);
	}
	assert_memory_equal(m.scale, m_scale, sizeof(m_scale));
	assert_memory_equal(v.scale, v_scale, sizeof(v_scale));
	assert_true(m_scale[0] > 0 && v_scale[4] > 0 && m_scale[3] == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_distance),
	        cmocka_unit_test(test_nearest),
	        cmocka_unit_test(test_as_an_update_stores_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
