/* links: optim */
/* also: usual */
/* AdamW and clipping: the same bits in every instruction set, close to double. */
#include "check.h"

#include "base/num.h"
#include "optim/adamw.h"

#include <float.h>
#include <math.h>

enum { GUARD = 32, GUARD_BYTE = 0xa5 };

/* Planes of one span inside guard bytes, each at an odd number of elements from an aligned address. */
struct planes {
	char *block[5];
	size_t bytes[5];
	struct adamw_span span;
};

static void planes_alloc(struct planes *p, int64_t count, enum dtype dtype, uint64_t skew)
{
	int element[5] = {2, 2, 4, 4, dtype == DTYPE_BF16 ? 2 : 4};
	char *at[5];

	for (int i = 0; i < 5; i++) {
		p->bytes[i] = 2 * GUARD + 64 + (size_t)count * element[i];
		p->block[i] = malloc(p->bytes[i]);
		assert_non_null(p->block[i]);
		memset(p->block[i], GUARD_BYTE, p->bytes[i]);
		at[i] = p->block[i] + GUARD + (skew >> (4 * i) & 15) * element[i];
	}
	p->span = (struct adamw_span){
	        .hi = (uint16_t *)at[0],
	        .lo = (int16_t *)at[1],
	        .m = at[2],
	        .v = at[3],
	        .grad = at[4],
	        .count = count,
	        .grad_dtype = dtype,
	};
}

static void planes_free(struct planes *p)
{
	for (int i = 0; i < 5; i++)
		free(p->block[i]);
}

static void planes_copy(struct planes *to, const struct planes *from)
{
	uint64_t skew = 0;
	const char *at[5] = {(char *)from->span.hi, (char *)from->span.lo, (char *)from->span.m,
	        (char *)from->span.v, from->span.grad};

	for (int i = 0; i < 5; i++) {
		int element = i < 2 ? 2 : i < 4 ? 4 : from->span.grad_dtype == DTYPE_BF16 ? 2 : 4;

		skew |= (uint64_t)(at[i] - from->block[i] - GUARD) / element << (4 * i);
	}
	planes_alloc(to, from->span.count, from->span.grad_dtype, skew);
	for (int i = 0; i < 5; i++)
		memcpy(to->block[i], from->block[i], from->bytes[i]);
	to->span.decay = from->span.decay;
}

/* Everything, guards included. */
static void planes_equal(const struct planes *a, const struct planes *b)
{
	for (int i = 0; i < 5; i++)
		assert_memory_equal(a->block[i], b->block[i], a->bytes[i]);
}

static void guards_intact(const struct planes *p)
{
	const char *at[5] = {
	        (char *)p->span.hi, (char *)p->span.lo, (char *)p->span.m, (char *)p->span.v, p->span.grad};

	for (int i = 0; i < 5; i++) {
		int element = i < 2 ? 2 : i < 4 ? 4 : p->span.grad_dtype == DTYPE_BF16 ? 2 : 4;

		for (const char *c = p->block[i]; c < p->block[i] + p->bytes[i]; c++)
			if (c < at[i] || c >= at[i] + p->span.count * element)
				assert_int_equal((unsigned char)*c, GUARD_BYTE);
	}
}

/* A float of the kinds that matter: ordinary sizes, any exponent, subnormal, zero of either sign, huge. */
static float any_float(uint64_t seed, uint64_t i)
{
	uint64_t r = rng_u64(seed, 7, i);
	uint32_t bits = (uint32_t)r & 0x807fffff;

	switch (r >> 32 & 15) {
	case 0:
		return f32_from_bits(bits); /* subnormal */
	case 1:
		return f32_from_bits(bits & 0x80000000);
	case 2:
		return f32_from_bits(bits | (uint32_t)(r >> 40) % 255 << 23);
	case 3:
		return f32_from_bits(bits | (uint32_t)(1 + (r >> 40) % 24) << 23); /* near the subnormals */
	case 4:
		return f32_from_bits(bits | 0x7f000000);
	case 5: /* near the least gradient, before and after clipping by 2^-100 */
		return f32_from_bits(bits | (uint32_t)(64 + (r >> 40) % 10 + (r >> 50 & 1) * 100) << 23);
	default:
		return (float)(rng_normal(seed, 8, i) * exp2((double)(r >> 40 & 31) - 28));
	}
}

static void planes_fill(struct planes *p, uint64_t seed)
{
	for (int64_t i = 0; i < p->span.count; i++) {
		uint32_t w = f32_bits(any_float(seed, 4 * i));
		float g = any_float(seed, 4 * i + 3);

		p->span.hi[i] = plane_hi(w);
		p->span.lo[i] = plane_lo(w);
		((float *)p->span.m)[i] = any_float(seed, 4 * i + 1);
		((float *)p->span.v)[i] = fabsf(any_float(seed, 4 * i + 2));
		if (p->span.grad_dtype == DTYPE_BF16)
			((uint16_t *)p->span.grad)[i] = (uint16_t)(f32_bits(g) >> 16);
		else
			((float *)p->span.grad)[i] = g;
	}
}

static float grad_of(const struct adamw_span *s, int64_t i)
{
	return s->grad_dtype == DTYPE_BF16 ? bf16_to_f32(((const uint16_t *)s->grad)[i])
	                                   : ((const float *)s->grad)[i];
}

static float *m_of(const struct adamw_span *s)
{
	return s->m;
}

static float *v_of(const struct adamw_span *s)
{
	return s->v;
}

static float weight_of(const struct adamw_span *s, int64_t i)
{
	return f32_from_bits(plane_join(s->hi[i], s->lo[i]));
}

static const struct adamw_options usual = {
        .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1};

static struct adamw_step step_at(int64_t update_count, double clip_scale)
{
	struct adamw_step step;

	adamw_step_init(&step, &usual, 1e-3, update_count, clip_scale);
	return step;
}

static int isa_is_here(enum adamw_isa isa)
{
	enum adamw_isa found;

	return adamw_isa_find(&found, adamw_isa_name(isa)) == 0;
}

static void test_isa_names(void **state)
{
	enum adamw_isa isa = ADAMW_ISA_COUNT;

	(void)state;
	check_ok(adamw_isa_find(&isa, "scalar"));
	assert_int_equal(isa, ADAMW_ISA_SCALAR);
	check_ok(adamw_isa_find(&isa, "auto"));
	for (int wider = isa + 1; wider < ADAMW_ISA_COUNT; wider++)
		assert_false(isa_is_here(wider));
	print_message("widest here: %s\n", adamw_isa_name(isa));
	check_fails(adamw_isa_find(&isa, "avx1024"), ERR_INPUT, "isa=avx1024");
	check_fails(adamw_isa_find(&isa, ""), ERR_INPUT, "auto, ");
}

static float flushed(float x)
{
	return fabsf(x) < FLT_MIN ? 0 : x;
}

static float plain_nan(float x)
{
	return x != x ? f32_from_bits(0x7fc00000) : x;
}

/* The formulas of adamw_state.h over an fp32 master, written once more; returns the new weight. */
static float plain_update(float *m, float *v, float w, float grad, int decay, const struct adamw_step *s)
{
	const float largest = f32_from_bits(0x7f7f0000);
	float g = grad * s->clip_scale, d;

	g = fabsf(g) < s->least_grad ? 0 : g;
	*m = fmaf(s->one_minus_beta1, g - *m, *m);
	*v = fmaf(s->one_minus_beta2, fmaf(g, g, -*v), *v);
	*v = *v < FLT_MIN ? 0 : *v;
	d = fmaf(sqrtf(*v), s->root_factor, s->root_offset);
	w = fmaf(w, decay ? s->decay_factor : 1, *m / d);
	*m = plain_nan(isinf(*m) ? copysignf(largest, *m) : flushed(*m));
	*v = plain_nan(isinf(*v) ? largest : *v);
	return plain_nan(w);
}

/* One span updated by every ISA of this CPU, twice: the same planes, guards intact, and the weights, m and v
 * of an fp32 master. */
static void check_span(
        int64_t count, enum dtype dtype, int decay, const struct adamw_step *step, uint64_t seed)
{
	struct planes before, after[ADAMW_ISA_COUNT];

	planes_alloc(&before, count, dtype, rng_u64(seed, 1, 0));
	before.span.decay = decay;
	planes_fill(&before, seed);
	for (int isa = 0; isa < ADAMW_ISA_COUNT; isa++) {
		planes_copy(&after[isa], &before);
		if (isa_is_here(isa)) {
			adamw_update(&after[isa].span, step, isa);
			adamw_update(&after[isa].span, step, isa);
			guards_intact(&after[isa]);
			planes_equal(&after[isa], &after[ADAMW_ISA_SCALAR]);
		}
	}
	for (int64_t i = 0; i < count; i++) {
		const struct adamw_span *s = &after[ADAMW_ISA_SCALAR].span;
		float m = m_of(&before.span)[i], v = v_of(&before.span)[i], w = weight_of(&before.span, i);

		w = plain_update(&m, &v, w, grad_of(&before.span, i), decay, step);
		w = plain_update(&m, &v, w, grad_of(&before.span, i), decay, step);
		assert_int_equal(f32_bits(m), f32_bits(m_of(s)[i]));
		assert_int_equal(f32_bits(v), f32_bits(v_of(s)[i]));
		assert_int_equal(f32_bits(w), f32_bits(weight_of(s, i)));
		assert_int_equal(s->hi[i], plane_hi(f32_bits(w)));
	}
	for (int isa = 0; isa < ADAMW_ISA_COUNT; isa++)
		planes_free(&after[isa]);
	planes_free(&before);
}

static void test_bits_of_every_isa(void **state)
{
	const struct adamw_step first = step_at(1, 1), late = step_at(1000000, 0.37),
	                        zero = step_at(3, 0x1p-100);
	uint64_t seed = 1;

	(void)state;
	for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++)
		for (int decay = 0; decay <= 1; decay++)
			for (int64_t count = 0; count <= 200; count++)
				check_span(count, dtype, decay, count & 1 ? &first : &late, seed++);
	for (int i = 0; i < 40; i++) {
		int64_t count = (int64_t)rng_below(seed, 2, 0, i < 38 ? 5000 : 100000);

		check_span(count, i & 1, i >> 1 & 1, i % 5 == 4 ? &zero : i % 3 ? &first : &late, seed++);
	}
}

/* AdamW in double from the same floats, with exact scalars; each bound adds up the roundings of adamw.h, u
 * each, and what flushing may take away. */
static void check_against_double(const struct adamw_span *after, const struct adamw_span *before, int64_t i,
        double lr, int64_t t, double clip)
{
	const double u = 0x1p-24, tiny = 4 * (double)FLT_MIN,
	             least = 1.00001 *
	                     sqrt(FLT_MIN / (1 - usual.beta2)); /* smaller gradients may count as 0 */
	double g = (double)grad_of(before, i) * clip, w = weight_of(before, i);
	double m0 = m_of(before)[i], v0 = v_of(before)[i];
	double m1 = usual.beta1 * m0, m2 = (1 - usual.beta1) * g, m = m1 + m2;
	double v1 = usual.beta2 * v0, v2 = (1 - usual.beta2) * g * g, v = v1 + v2;
	double m_bound = u * fabs(m) + (1 - usual.beta1) * u * (2 * fabs(g - m0) + fabs(g)) * 1.001 + tiny +
	                 (fabs(g) < least ? fabs(m2) : 0);
	double v_bound = u * v + (1 - usual.beta2) * u * (2 * fabs(g * g - v0) + 2 * g * g) * 1.001 + tiny;
	double correction1 = 1 - pow(usual.beta1, (double)t), correction2 = 1 - pow(usual.beta2, (double)t);
	double scale2 = 1 / sqrt(correction2), d = sqrt(v) * scale2 + usual.epsilon;
	double d_bound = 4 * u * d + (sqrt(v + v_bound) - sqrt(fmax(0, v - v_bound))) * scale2;
	double step = lr / correction1, kept = before->decay ? w * (1 - lr * usual.weight_decay) : w;
	double q_bound = (m_bound + fabs(m / d) * d_bound) / (d - d_bound);
	double w_bound = 3 * u * (fabs(kept) + step * fabs(m / d)) + step * q_bound + tiny;

	if (!(fabs(m_of(after)[i] - m) <= m_bound) || !(fabs(v_of(after)[i] - v) <= v_bound) ||
	        !(fabs(weight_of(after, i) - (kept - step * m / d)) <= w_bound)) {
		print_error("element %lld: w %a g %a m %a v %a became w %a m %a v %a, in double %a %a %a\n",
		        (long long)i, w, g, m_of(before)[i], v_of(before)[i], weight_of(after, i),
		        m_of(after)[i], v_of(after)[i], kept - step * m / d, m, v);
		fail();
	}
}

static void test_against_double(void **state)
{
	const struct {
		int64_t t;
		double clip;
	} cases[] = {{1, 1}, {2, 0.01}, {1000, 1}, {1000000, 0.5}};

	(void)state;
	for (size_t c = 0; c < 16; c++) {
		const struct adamw_step step = step_at(cases[c / 4].t, cases[c / 4].clip);
		struct planes before, after;
		enum adamw_isa isa = 0;
		int checked = 0;

		check_ok(adamw_isa_find(&isa, "auto"));
		planes_alloc(&before, 20000, c & 1, c);
		before.span.decay = c >> 1 & 1;
		planes_fill(&before, 1000 + c);
		planes_copy(&after, &before);
		adamw_update(&after.span, &step, isa);
		for (int64_t i = 0; i < before.span.count; i++) {
			double g = grad_of(&before.span, i);

			/* what overflows a float on the way is left to the comparison of bits */
			if (g * g < 1e38 && v_of(&before.span)[i] < 1e38f &&
			        fabsf(m_of(&before.span)[i]) < 1e25f &&
			        fabsf(weight_of(&before.span, i)) < 1e37f) {
				check_against_double(&after.span, &before.span, i, 1e-3, cases[c / 4].t,
				        cases[c / 4].clip);
				checked++;
			}
		}
		assert_true(checked > before.span.count / 2);
		planes_free(&after);
		planes_free(&before);
	}
}

/* A NaN weight stays NaN in the hi plane, which is all that the device sees; NaN 0x7fffffff would become -0.
 */
static void test_nan_weight(void **state)
{
	const struct adamw_step step = step_at(1, 1);

	(void)state;
	for (int isa = 0; isa < ADAMW_ISA_COUNT; isa++) {
		struct planes p;

		if (!isa_is_here(isa))
			continue;
		planes_alloc(&p, 200, DTYPE_F32, 0);
		planes_fill(&p, 5);
		for (int i = 0; i < 200; i++) { /* joins to 0x7fffffff, 0xffffffff, 0x7f800001 */
			p.span.hi[i] = i % 3 == 0 ? 0x8000 : i % 3 == 1 ? 0 : 0x7f80;
			p.span.lo[i] = i % 3 == 2 ? 1 : -1;
		}
		adamw_update(&p.span, &step, isa);
		for (int i = 0; i < 200; i++) {
			assert_int_equal(p.span.hi[i], 0x7fc0);
			assert_int_equal(p.span.lo[i], 0);
		}
		planes_free(&p);
	}
}

/* After many steps without gradients m and v are +0, not subnormal; the weight decays on. */
static void test_zero_gradients_flush(void **state)
{
	const struct adamw_step step = step_at(1000000, 1);
	enum adamw_isa isa = 0;
	struct planes p;

	(void)state;
	check_ok(adamw_isa_find(&isa, "auto"));
	planes_alloc(&p, 100, DTYPE_BF16, 0x12345);
	p.span.decay = 1;
	for (int i = 0; i < 100; i++) {
		p.span.hi[i] = 0x3f80;
		p.span.lo[i] = 0;
		m_of(&p.span)[i] = i & 1 ? -1e-30f : 1e-30f;
		v_of(&p.span)[i] = 0;
		((uint16_t *)p.span.grad)[i] = i & 1 ? 0x8000 : 0;
	}
	for (int t = 0; t < 400; t++)
		adamw_update(&p.span, &step, isa);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(f32_bits(m_of(&p.span)[i]), 0);
		assert_int_equal(f32_bits(v_of(&p.span)[i]), 0);
		assert_true(fabs(weight_of(&p.span, i) - pow(1 - 1e-4, 400)) < 1e-4);
	}
	guards_intact(&p);
	planes_free(&p);
}

/* A gradient either counts in both m and v, which are then normal numbers, or in none: no m is left to be
 * divided by an epsilon of 0. */
static void test_least_gradient(void **state)
{
	const double beta2[] = {0, 0.9, 0.95, 0.999, 0.9999999};
	enum { COUNT = 800 };
	enum adamw_isa isa = 0;

	(void)state;
	check_ok(adamw_isa_find(&isa, "auto"));
	for (size_t b = 0; b < sizeof(beta2) / sizeof(beta2[0]); b++)
		for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
			struct adamw_options options = usual;
			struct adamw_step step;
			struct planes p;
			int kept = 0;

			options.beta2 = beta2[b];
			options.epsilon = 0;
			adamw_step_init(&step, &options, 1e-3, 1, b & 1 ? 1 : 0.37);
			planes_alloc(&p, COUNT, dtype, 0);
			planes_fill(&p, b);
			for (int i = 0; i < COUNT; i++) { /* 2^-70 to 2^-45, in 32 steps each */
				uint32_t bits = (uint32_t)((127 - 70) * 32 + i) << 18;

				p.span.hi[i] = 0x3f80;
				m_of(&p.span)[i] = v_of(&p.span)[i] = 0;
				if (dtype == DTYPE_BF16)
					((uint16_t *)p.span.grad)[i] = (uint16_t)(bits >> 16);
				else
					((uint32_t *)p.span.grad)[i] = bits;
			}
			adamw_update(&p.span, &step, isa);
			for (int i = 0; i < COUNT; i++) {
				float m = m_of(&p.span)[i], v = v_of(&p.span)[i];

				assert_true(m == 0 ? v == 0 : m >= FLT_MIN && v >= FLT_MIN);
				assert_true(isfinite(weight_of(&p.span, i)) || m == 0); /* 0 / 0 */
				kept += m != 0;
			}
			assert_in_range(kept, COUNT / 8, COUNT - COUNT / 8);
			planes_free(&p);
		}
}

static void test_step_scalars(void **state)
{
	struct adamw_step step = step_at(1, 0.25);

	(void)state;
	assert_true(step.one_minus_beta2 == (float)(1 - 0.999)); /* 1.3e-5 off if computed in float */
	assert_true(step.one_minus_beta2 != 1 - 0.999f);
	assert_true(fabs(step.root_factor / (-31.6227766016838 / 1e-2) - 1) < 1e-6);
	assert_true(fabs(step.root_offset / (-1e-8 / 1e-2) - 1) < 1e-6);
	assert_true(step.decay_factor == (float)(1 - 1e-4) && step.clip_scale == 0.25f);
	step = step_at(1000000, 1);
	assert_true(step.root_factor == -1e3f && fabs(step.root_offset / -1e-5 - 1) < 1e-6);
}

/* A learning rate of 0 moves no weight, with an epsilon and without. */
static void test_rate_of_zero(void **state)
{
	(void)state;
	for (int isa = 0; isa < ADAMW_ISA_COUNT; isa++)
		for (int without = 0; isa_is_here(isa) && without < 2; without++) {
			struct adamw_options options = usual;
			struct planes before, after;
			struct adamw_step step;

			if (without)
				options.epsilon = 0;
			adamw_step_init(&step, &options, 0, 3, 0.5);
			planes_alloc(&before, 500, DTYPE_BF16, 0);
			before.span.decay = 1;
			planes_fill(&before, 9);
			for (int i = 0; i < 500; i++) {
				m_of(&before.span)[i] = i % 7 ? (float)rng_normal(1, 1, i) : 0;
				v_of(&before.span)[i] = i % 3 ? (float)rng_uniform(1, 2, i) : 0;
				((uint16_t *)before.span.grad)[i] = i % 5 ? 0x3c00 : 0;
			}
			planes_copy(&after, &before);
			adamw_update(&after.span, &step, isa);
			for (int i = 0; i < 500; i++)
				assert_true(weight_of(&after.span, i) == weight_of(&before.span, i));
			planes_free(&after);
			planes_free(&before);
		}
}

static void test_clip_scale(void **state)
{
	(void)state;
	assert_true(clip_scale_of(10, 0) == 1);
	assert_true(clip_scale_of(0, 1) == 1);
	assert_true(clip_scale_of(0.5, 1) == 1);
	assert_true(fabs(clip_scale_of(4, 1) - 1 / 4.000001) < 1e-15);
	assert_true(fabs(clip_scale_of(1, 1) - 1 / 1.000001) < 1e-15); /* torch divides by norm + 1e-6 */
}

/* One block's sum by the definition: 16 runs of 64 lanes, then halves added to halves. */
static double lanes_of(const struct adamw_span *s, int64_t first, int64_t end)
{
	double lane[16][64] = {0};

	for (int64_t i = first; i < end; i++)
		lane[(i - first) / 4096][(i - first) % 64] += (double)grad_of(s, i) * grad_of(s, i);
	for (int half = 32; half; half /= 2)
		for (int r = 0; r < 16; r++)
			for (int j = 0; j < half; j++)
				lane[r][j] += lane[r][j + half];
	for (int half = 8; half; half /= 2)
		for (int r = 0; r < half; r++)
			lane[r][0] += lane[r + half][0];
	return lane[0][0];
}

static void check_sumsq(int64_t count, enum dtype dtype, uint64_t seed)
{
	int64_t block_count = (count + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK;
	double *partial = malloc((size_t)(block_count + 1) * sizeof(*partial));
	struct planes p;

	assert_non_null(partial);
	planes_alloc(&p, count, dtype, seed);
	planes_fill(&p, seed);
	for (int isa = 0; isa < ADAMW_ISA_COUNT; isa++) {
		if (!isa_is_here(isa))
			continue;
		partial[block_count] = -1;
		sumsq_blocks(partial, p.span.grad, count, dtype, isa);
		assert_true(partial[block_count] == -1);
		for (int64_t b = 0; b < block_count; b++) {
			int64_t first = b * SUMSQ_BLOCK,
			        end = first + SUMSQ_BLOCK < count ? first + SUMSQ_BLOCK : count;
			long double exact = 0;

			for (int64_t i = first; i < end; i++)
				exact += (long double)grad_of(&p.span, i) * grad_of(&p.span, i);
			assert_true(
			        fabsl(partial[b] - exact) <= 80 * 0x1p-53L * exact); /* a lane's additions */
			assert_true(partial[b] == lanes_of(&p.span, first, end));
		}
	}
	planes_free(&p);
	free(partial);
}

static void test_sumsq(void **state)
{
	(void)state;
	for (int64_t count = 0; count <= 130; count++)
		check_sumsq(count, count & 1, (uint64_t)count);
	for (int i = 0; i < 6; i++)
		check_sumsq(SUMSQ_BLOCK * (i / 2) + (int64_t)rng_below(3, 3, i, SUMSQ_BLOCK), i & 1, 500 + i);
	check_sumsq(2 * SUMSQ_BLOCK, DTYPE_BF16, 600);
}

static void test_sumsq_not_finite(void **state)
{
	float x[300] = {0};
	double partial;

	(void)state;
	for (int isa = 0; isa < ADAMW_ISA_COUNT; isa++)
		for (int at = 0; isa_is_here(isa) && at < 300; at++) {
			x[at] = at & 1 ? NAN : -INFINITY;
			sumsq_blocks(&partial, x, 300, DTYPE_F32, isa);
			assert_false(isfinite(partial));
			x[at] = FLT_MAX; /* its square is no float */
			sumsq_blocks(&partial, x, 300, DTYPE_F32, isa);
			assert_true(isfinite(partial));
			x[at] = 0;
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_isa_names),
	        cmocka_unit_test(test_least_gradient),
	        cmocka_unit_test(test_step_scalars),
	        cmocka_unit_test(test_rate_of_zero),
	        cmocka_unit_test(test_clip_scale),
	        cmocka_unit_test(test_bits_of_every_isa),
	        cmocka_unit_test(test_against_double),
	        cmocka_unit_test(test_nan_weight),
	        cmocka_unit_test(test_zero_gradients_flush),
	        cmocka_unit_test(test_sumsq),
	        cmocka_unit_test(test_sumsq_not_finite),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
