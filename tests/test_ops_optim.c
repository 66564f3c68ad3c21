/* links: host_cpu */
/* also: tsan cuda */
/* Sums of squares and AdamW on a device: the bits of optim/. */
#include "optim/adamw.h"
#include "tests/ops_check.h"

#include <float.h>

/* AdamW and sums of squares of the device, bit for bit those of optim/adamw.c: of any floats there are. */

/* Of how many floats nine are not of ordinary size: a GPU has a way of its own for those that are. */
enum { ODD_OFTEN = 32, ODD_SELDOM = 9000, ODD_NEVER = INT32_MAX };
static int odd_range = ODD_OFTEN;

/* A float of the kinds that matter: ordinary sizes, any exponent, subnormal, zero of either sign, huge,
 * infinite, NaN of any payload. */
static uint32_t any_bits(struct ops_case *c)
{
	uint32_t bits = (uint32_t)case_int(c, 0, UINT32_MAX), mantissa = bits & 0x807fffff;

	switch (case_int(c, 0, odd_range - 1)) {
	case 0:
		return mantissa; /* subnormal */
	case 1:
		return bits & 0x80000000;
	case 2:
	case 3:
		return bits;
	case 4:
		return mantissa | (uint32_t)case_int(c, 1, 24) << 23; /* near the subnormals */
	case 5:
		return mantissa | 0x7f000000;
	case 6:
		return (bits & 0x80000000) | 0x7f800000;
	case 7:
		return mantissa | 0x7f800000;
	case 8: /* near the least gradient */
		return mantissa | (uint32_t)case_int(c, 64, 74) << 23;
	default:
		return f32_bits((float)(case_normal(c) * exp2((double)case_int(c, -28, 3))));
	}
}

static void *tensor_data(const struct tensor *t)
{
	return t->block + t->offset;
}

/* v without its sign, but for a few. */
static void fill_any(struct ops_case *c, struct tensor *t, uint32_t clear)
{
	uint8_t *data = tensor_data(t);

	for (int64_t i = 0; i < t->count; i++) {
		uint32_t bits = any_bits(c);

		bits &= odd_range != ODD_OFTEN || case_int(c, 0, 15) ? ~clear : ~0u;
		if (t->dtype == DTYPE_F32)
			memcpy(data + 4 * i, &bits, 4);
		else
			memcpy(data + 2 * i, (uint8_t *)&bits + 2, 2);
	}
}

static void fill_planes(struct ops_case *c, struct tensor *hi, struct tensor *lo)
{
	for (int64_t i = 0; i < hi->count; i++) {
		uint32_t bits = any_bits(c);
		uint16_t h = case_int(c, 0, 15) ? plane_hi(bits) : (uint16_t)(bits >> 16);
		uint16_t l = (uint16_t)plane_lo(bits);

		memcpy((uint8_t *)tensor_data(hi) + 2 * i, &h, 2);
		memcpy((uint8_t *)tensor_data(lo) + 2 * i, &l, 2);
	}
}

/* A step as in a run, or one with scalars near difficult roundings. */
static struct adamw_step step_any(struct ops_case *c)
{
	static const struct adamw_options options[] = {{0.9, 0.999, 1e-8, 0.1, 1}, {0.9, 0.95, 1e-15, 0, 2},
	        {0, 0, 1e-30, 0.01, 3}, {0.99, 0.9999, 0, 1, 4}};
	static const double clips[] = {1, 1, 0.37, 1e-6, 0x1p-100};
	struct adamw_step step;

	adamw_step_init(&step, &options[case_int(c, 0, 3)], case_int(c, 0, 1) ? 1e-3 : 2e-5,
	        case_int(c, 0, 1) ? 1 : 1000000, clips[case_int(c, 0, 4)]);
	return step;
}

/* Codes of any kind, with scales that an update may have left. */
static void fill_codes(struct ops_case *c, struct tensor *codes, struct tensor *scales)
{
	for (int64_t i = 0; i < codes->count; i++)
		((uint8_t *)tensor_data(codes))[i] = (uint8_t)case_int(c, 0, 255);
	fill_any(c, scales, 0x80000000);
	for (int64_t i = 0; i < scales->count; i++) {
		uint8_t *at = (uint8_t *)tensor_data(scales) + 4 * i;

		at[3] &= 0x7f;
	}
}

/* The planes of m and v, and their scales. */
struct state_planes {
	struct tensor *m, *v, *m_scale, *v_scale;
};

static void state_make(struct ops_case *c, struct state_planes *s, int64_t count, enum adamw_state format)
{
	int64_t blocks = (count - 1) / ADAMW_BLOCK + 1;

	*s = (struct state_planes){
	        .m = case_tensor(c, count, adamw_state_dtype(format), 1),
	        .v = case_tensor(c, count, adamw_state_dtype(format), 1),
	};
	if (adamw_state_has_scales(format)) {
		s->m_scale = case_tensor(c, blocks, DTYPE_F32, 1);
		s->v_scale = case_tensor(c, blocks, DTYPE_F32, 1);
		fill_codes(c, s->m, s->m_scale);
		fill_codes(c, s->v, s->v_scale);
	} else {
		fill_any(c, s->m, 0);
		fill_any(c, s->v, 0x80000000);
	}
}

static void *first_of(const struct tensor *t)
{
	return t ? t->first + t->offset : NULL;
}

static void adamw_try(uint64_t seed, int64_t count, enum adamw_state format)
{
	struct ops_case c;
	struct tensor *hi, *lo, *grad;
	struct state_planes state;
	struct op op = {.kind = OP_ADAMW};
	struct adamw_step step;
	struct adamw_span span;
	enum dtype dtype = seed & 1 ? DTYPE_F32 : DTYPE_BF16;
	int decay = (int)(seed >> 1 & 1), tensor = (int)(seed % 5) * 1000;
	int64_t first = (seed & 4 ? INT64_C(1) << 33 : 0) + (int64_t)(seed % 7) * ADAMW_BLOCK;

	case_begin(&c, "adamw", seed);
	if (format == ADAMW_STATE_BF16)
		first += case_int(&c, 0, 3000);
	hi = case_tensor(&c, count, DTYPE_BF16, 1);
	lo = case_tensor(&c, count, DTYPE_I16, 1);
	grad = case_tensor(&c, count, dtype, 1);
	fill_planes(&c, hi, lo);
	state_make(&c, &state, count, format);
	fill_any(&c, grad, 0);
	step = step_any(&c);
	op.adamw = (struct op_adamw){.hi = tensor_addr(hi),
	        .lo = tensor_addr(lo),
	        .m = tensor_addr(state.m),
	        .v = tensor_addr(state.v),
	        .m_scale = state.m_scale ? tensor_addr(state.m_scale) : DEV_NONE,
	        .v_scale = state.v_scale ? tensor_addr(state.v_scale) : DEV_NONE,
	        .grad = tensor_addr(grad),
	        .count = count,
	        .first = first,
	        .tensor = tensor,
	        .decay = decay,
	        .grad_dtype = dtype,
	        .state = format,
	        .step = step};
	case_run(&c, &op);
	span = (struct adamw_span){
	        .hi = first_of(hi),
	        .lo = first_of(lo),
	        .m = first_of(state.m),
	        .v = first_of(state.v),
	        .m_scale = first_of(state.m_scale),
	        .v_scale = first_of(state.v_scale),
	        .grad = first_of(grad),
	        .count = count,
	        .first = first,
	        .tensor = tensor,
	        .decay = decay,
	        .grad_dtype = dtype,
	        .state = format,
	};
	if (count > 100) {
		assert_memory_not_equal(state.m->first, state.m->block, (size_t)state.m->bytes);
		assert_memory_not_equal(state.v->first, state.v->block, (size_t)state.v->bytes);
	}
	adamw_update(&span, &step, ADAMW_ISA_SCALAR);
	case_end(&c); /* now `first` holds what the op must have made of it */
}

static void test_adamw(void **state)
{
	enum { EACH = SANITIZED ? 3 : 1 }; /* odd: both dtypes still come with each size of a block */

	(void)state;
	for (enum adamw_state s = 0; s < ADAMW_STATE_COUNT; s++) {
		for (uint64_t seed = 0; seed < 254; seed += EACH) /* both dtypes, decay or not */
			adamw_try(seed, (int64_t)seed / 2 + 1, s);
		for (uint64_t seed = 300; seed < 316; seed += EACH)
			adamw_try(seed, (int64_t)rng_below(seed, 9, 0, 9000) + 1, s);
		for (uint64_t seed = 320; seed < 328;
		        seed += EACH) /* whole blocks, and one element more or less */
			adamw_try(seed, 1024 + (int64_t)(seed % 4) - 2, s);
		for (uint64_t seed = 400; seed < 404; seed += EACH) /* more than one piece of the host's */
			adamw_try(seed, 16300 + (int64_t)rng_below(seed, 9, 0, 50000), s);
		for (uint64_t seed = 500; seed < 532; seed += EACH) {
			odd_range = seed % 8 < 3 ? ODD_NEVER : ODD_SELDOM;
			adamw_try(seed, 2000 + (int64_t)rng_below(seed, 9, 0, 9000), s);
		}
		odd_range = ODD_OFTEN;
	}
}

static void sumsq_try(uint64_t seed, int64_t count, int ordinary)
{
	struct ops_case c;
	struct tensor *partial, *x;
	struct op op = {.kind = OP_SUMSQ};
	enum dtype dtype = seed & 1 ? DTYPE_F32 : DTYPE_BF16;
	int64_t blocks = (count - 1) / SUMSQ_BLOCK + 1;
	double *want = mem_alloc((size_t)blocks, sizeof *want);

	assert_non_null(want);
	case_begin(&c, "sumsq", seed);
	x = case_tensor(&c, count, dtype, 1);
	partial = case_tensor(&c, blocks, DTYPE_F64, 1);
	if (!ordinary)
		fill_any(&c, x, 0);
	op.sumsq = (struct op_sumsq){tensor_addr(partial), tensor_addr(x), count, dtype};
	case_run(&c, &op);
	sumsq_blocks(
	        want, tensor_data(x), count, dtype == DTYPE_F32 ? DTYPE_F32 : DTYPE_BF16, ADAMW_ISA_SCALAR);
	for (int64_t b = 0; b < blocks; b++) {
		double got = tensor_get(partial, b);

		if (memcmp(&got, &want[b], 8) != 0 && !(isnan(got) && isnan(want[b])))
			fail_msg("sumsq, seed %llu, %lld elements: block %lld is %a, wanted %a",
			        (unsigned long long)seed, (long long)count, (long long)b, got, want[b]);
		partial->written[b] = 1;
	}
	case_end(&c);
	mem_free(want);
}

static void test_sumsq(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 130; seed++)
		sumsq_try(seed, (int64_t)seed + 1, 1);
	for (uint64_t seed = 200; seed < 212; seed++)
		sumsq_try(seed, (int64_t)rng_below(seed, 9, 0, 9000) + 1, seed & 2);
	for (uint64_t seed = 300; seed < 304; seed++)
		sumsq_try(seed, SUMSQ_BLOCK * (1 + (seed & 2)) - 4100 + (int64_t)rng_below(seed, 9, 0, 9000),
		        1);
}

/* The bits of a cast, and of the sum of what it made. */
static void cast_sumsq_try(uint64_t seed, int64_t count)
{
	struct ops_case c;
	struct tensor *partial, *dst, *src;
	struct op op = {.kind = OP_CAST_SUMSQ};
	int64_t blocks = (count - 1) / SUMSQ_BLOCK + 1;
	double *want = mem_alloc((size_t)blocks, sizeof *want);
	uint16_t *rounded = mem_alloc((size_t)count, sizeof *rounded);

	assert_true(want && rounded);
	case_begin(&c, "cast_sumsq", seed);
	src = case_tensor(&c, count, DTYPE_F32, 1);
	dst = case_tensor(&c, count, DTYPE_BF16, 1);
	partial = case_tensor(&c, blocks, DTYPE_F64, 1);
	if (seed % 3 == 0)
		fill_any(&c, src, 0);
	for (int64_t i = 0; i < count; i++) {
		float x;

		memcpy(&x, (uint8_t *)tensor_data(src) + 4 * i, 4);
		rounded[i] = bf16_from_f32(x);
	}
	op.cast_sumsq =
	        (struct op_cast_sumsq){tensor_addr(dst), tensor_addr(partial), tensor_addr(src), count};
	case_run(&c, &op);
	assert_memory_equal(tensor_data(dst), rounded, 2 * (size_t)count);
	memset(dst->written, 1, (size_t)count);
	sumsq_blocks(want, rounded, count, DTYPE_BF16, ADAMW_ISA_SCALAR);
	for (int64_t b = 0; b < blocks; b++) {
		double got = tensor_get(partial, b);

		if (memcmp(&got, &want[b], 8) != 0 && !(isnan(got) && isnan(want[b])))
			fail_msg("cast_sumsq, seed %llu, %lld elements: block %lld is %a, wanted %a",
			        (unsigned long long)seed, (long long)count, (long long)b, got, want[b]);
		partial->written[b] = 1;
	}
	case_end(&c);
	mem_free(want);
	mem_free(rounded);
}

static void test_cast_sumsq(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 130; seed++)
		cast_sumsq_try(seed, (int64_t)seed + 1);
	for (uint64_t seed = 200; seed < 212; seed++)
		cast_sumsq_try(seed, (int64_t)rng_below(seed, 9, 0, 9000) + 1);
	for (uint64_t seed = 300; seed < 306; seed++)
		cast_sumsq_try(seed,
		        SUMSQ_BLOCK * (int64_t)(1 + seed % 2) - 4100 + (int64_t)rng_below(seed, 9, 0, 9000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_adamw),
	        cmocka_unit_test(test_sumsq),
	        cmocka_unit_test(test_cast_sumsq),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
