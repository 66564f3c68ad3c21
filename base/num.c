/* 16-bit floats, the two halves of an fp32 master weight, counter-based random numbers. */
#include "base/num.h"

#include <math.h>

float f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;

	if (exponent == 31)
		return f32_from_bits(sign | 0x7f800000 | fraction << 13);
	if (exponent)
		return f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
	/* a subnormal is fraction * 2^-24, exact in fp32; or-ing the sign keeps -0 */
	return f32_from_bits(sign | f32_bits((float)fraction * 0x1p-24f));
}

uint16_t f16_from_f32(float x)
{
	uint32_t u = f32_bits(x), abs = u & 0x7fffffff;
	uint16_t sign = (u >> 16) & 0x8000;
	uint32_t shift, fraction, half, rest;

	if (abs > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (abs >> 13 & 0x3ff));
	if (abs >= 0x477ff000) /* 65520, the first that rounds to infinity */
		return sign | 0x7c00;
	if (abs >= 0x38800000) { /* 2^-14: normal */
		abs -= 112u << 23;
		return (uint16_t)(sign | (abs + 0xfff + (abs >> 13 & 1)) >> 13);
	}
	if (abs <= 0x33000000) /* 2^-25, a tie with zero */
		return sign;
	shift = 126 - (abs >> 23); /* 14 .. 24 bits of the 24-bit significand are below 2^-24 */
	fraction = (abs & 0x7fffff) | 0x800000;
	half = fraction >> shift;
	rest = fraction & ((1u << shift) - 1);
	if (rest > 1u << (shift - 1) || (rest == 1u << (shift - 1) && (half & 1)))
		half++;
	return (uint16_t)(sign | half);
}

/* Philox4x32-10 (Salmon et al. 2011): the key is the seed, the counter is (index, stream). */
static void philox(uint64_t out[2], uint64_t seed, uint64_t stream, uint64_t index)
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
	uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
	uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xd2511f53 * c0, p1 = (uint64_t)0xcd9e8d57 * c2;

		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)p1;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)p0;
		k0 += 0x9e3779b9;
		k1 += 0xbb67ae85;
	}
	out[0] = (uint64_t)c1 << 32 | c0;
	out[1] = (uint64_t)c3 << 32 | c2;
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
	uint64_t bits[2];

	philox(bits, seed, stream, index);
	return bits[0];
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
	return (double)(rng_u64(seed, stream, index) >> 11) * 0x1p-53;
}

double rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
	uint64_t bits[2];
	double radius, angle;

	philox(bits, seed, stream, index);
	radius = sqrt(-2 * log((double)((bits[0] >> 11) + 1) * 0x1p-53)); /* in (0, 1]: a finite log */
	angle = 2 * M_PI * (double)(bits[1] >> 11) * 0x1p-53;
	return radius * cos(angle);
}

uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound)
{
	return (uint64_t)(((unsigned __int128)rng_u64(seed, stream, index) * bound) >> 64);
}
