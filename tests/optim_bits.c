/* Prints a hash of all bits that AdamW and sums of squares compute in many cases.
 *
 * It uses the widest kernels of the machine, and fails if the scalar kernels give other bits. The program for
 * another architecture must print the same hash (tests/arm64_bits.sh). Needs only optim and base. */
#include "base/num.h"
#include "optim/adamw.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 3000, BLOCKS = MOST / ADAMW_BLOCK + 1, CASES = 600 };

struct planes {
	uint16_t hi[MOST];
	int16_t lo[MOST];
	uint32_t m[MOST], v[MOST];
	uint32_t m_scale[BLOCKS], v_scale[BLOCKS];
};

static uint64_t random_state = 1;

static uint32_t random_bits(void)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(random_state >> 32);
}

/* Ordinary numbers, and of those that are not every kind. */
static uint32_t float_bits(void)
{
	uint32_t bits = random_bits(), kind = random_bits() % 64;

	if (kind == 0)
		return bits;
	if (kind == 1)
		return bits & 0x807fffff; /* subnormal */
	if (kind == 2)
		return bits | 0x7f800000; /* NaN */
	if (kind == 3)
		return (bits & 0x80000000) | 0x7f800000;
	if (kind < 8)
		return (bits & 0x807fffff) | (1 + random_bits() % 3) << 23;
	return (bits & 0x807fffff) | (100 + random_bits() % 40) << 23;
}

static void fill(struct planes *p)
{
	for (int i = 0; i < MOST; i++) {
		uint32_t w = float_bits();

		p->hi[i] = (uint16_t)(i % 16 ? plane_hi(w) : w >> 16);
		p->lo[i] = plane_lo(w);
		p->m[i] = float_bits();
		p->v[i] = float_bits() & 0x7fff7fff;
	}
	for (int i = 0; i < BLOCKS; i++) {
		p->m_scale[i] = float_bits() & 0x7fffffff;
		p->v_scale[i] = float_bits() & 0x7fffffff;
	}
}

static struct adamw_step any_step(void)
{
	static const struct adamw_options options[] = {{0.9, 0.999, 1e-8, 0.1, 1}, {0.9, 0.95, 1e-15, 0, 2},
	        {0, 0, 1e-30, 0.01, 3}, {0.99, 0.9999, 0, 1, 4}};
	static const double clips[] = {1, 1, 0.37, 1e-6, 0x1p-100};
	const struct adamw_options *o = &options[random_bits() % 4];
	double rate = random_bits() & 1 ? 1e-3 : 2e-5;
	struct adamw_step step;

	adamw_step_init(&step, o, rate, 1, clips[random_bits() % 5]);
	return step;
}

static uint64_t sum_of(uint64_t sum, const void *data, size_t bytes)
{
	for (const unsigned char *c = data, *end = c + bytes; c < end; c++)
		sum = (sum ^ *c) * UINT64_C(0x100000001b3);
	return sum;
}

static void update(
        struct planes *p, struct adamw_span span, const struct adamw_step *step, enum adamw_isa isa)
{
	span.hi = p->hi;
	span.lo = p->lo;
	span.m = p->m;
	span.v = p->v;
	span.m_scale = (float *)(void *)p->m_scale;
	span.v_scale = (float *)(void *)p->v_scale;
	adamw_update(&span, step, isa);
}

int main(void)
{
	static struct planes plain, wide;
	static uint32_t grad[MOST];
	uint64_t sums[ADAMW_STATE_COUNT] = {0}, sumsq = 0;
	enum adamw_isa isa;

	if (adamw_isa_find(&isa, "auto"))
		return 2;
	for (int i = 0; i < CASES; i++) {
		struct adamw_step step = any_step();
		uint32_t count = random_bits(), first = random_bits(); /* in this order everywhere */
		struct adamw_span span = {.grad = grad,
		        .count = count % (i & 1 ? 128 : MOST),
		        .first = first % 5000,
		        .tensor = i % 7,
		        .decay = i >> 1 & 1,
		        .grad_dtype = random_bits() & 1 ? DTYPE_F32 : DTYPE_BF16,
		        .state = (enum adamw_state)(i % ADAMW_STATE_COUNT)};
		double partial[2];

		if (span.state == ADAMW_STATE_8BIT)
			span.first = 0;
		fill(&plain);
		wide = plain;
		for (int j = 0; j < MOST; j++)
			grad[j] = float_bits();
		update(&plain, span, &step, ADAMW_ISA_SCALAR);
		update(&wide, span, &step, isa);
		if (memcmp(&plain, &wide, sizeof(plain)) != 0) {
			fprintf(stderr, "case %d: %s differs from scalar\n", i, adamw_isa_name(isa));
			return 1;
		}
		sums[span.state] = sum_of(sums[span.state], &plain, sizeof(plain));
		for (int j = 0; j < MOST; j++)
			grad[j] &=
			        0xbfffbfff; /* finite: of infinite sums the sign of a NaN is the machine's */
		sumsq_blocks(partial, grad, span.count, span.grad_dtype, isa);
		sumsq_blocks(partial + 1, grad, span.count, span.grad_dtype, ADAMW_ISA_SCALAR);
		if (span.count && memcmp(partial, partial + 1, 8) != 0)
			return 1;
		if (span.count)
			sumsq = sum_of(sumsq, partial, 8);
	}
	printf("fp32 %016llx bf16 %016llx 8bit %016llx sumsq %016llx\n", (unsigned long long)sums[0],
	        (unsigned long long)sums[1], (unsigned long long)sums[2], (unsigned long long)sumsq);
	return 0;
}
