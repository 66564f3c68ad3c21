/* 16-bit floats, the two planes of an fp32 master weight, and counter-based random numbers.
 *
 * A plane is one array of a split number: hi has the upper 16 bits of all weights, lo the lower 16.
 * bf16_from_f32 rounds to nearest, ties to even. The planes use another rule (ties away), because hi and lo
 * must add up exactly: see plane_hi.
 */
#ifndef FERRY_BASE_NUM_H
#define FERRY_BASE_NUM_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float x)
{
	uint32_t u;
	memcpy(&u, &x, 4);
	return u;
}
static inline float f32_from_bits(uint32_t u)
{
	float x;
	memcpy(&x, &u, 4);
	return x;
}

static inline float bf16_to_f32(uint16_t h)
{
	return f32_from_bits((uint32_t)h << 16);
}

static inline uint16_t bf16_from_f32(float x)
{
	uint32_t u = f32_bits(x);

	if ((u & 0x7fffffff) > 0x7f800000) /* NaN stays NaN: keep the top bits, set quiet */
		return (uint16_t)((u >> 16) | 0x40);
	return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

float f16_to_f32(uint16_t h);   /* IEEE binary16, subnormals included */
uint16_t f16_from_f32(float x); /* nearest, ties to even */

/* The planes: bits = (hi << 16) + lo, with lo a signed 16-bit number. hi is the bf16 weight, rounded to
 * nearest with ties away. NaN becomes the quiet NaN of its sign with lo = 0. If hi of a finite value rounds
 * up to infinity, hi and lo keep the value's bits and joining gives it back. */
static inline uint16_t plane_hi(uint32_t bits)
{
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(((bits >> 16) & 0x8000) | 0x7fc0);
	return (uint16_t)((bits + 0x8000) >> 16);
}

static inline int16_t plane_lo(uint32_t bits)
{
	if ((bits & 0x7fffffff) > 0x7f800000)
		return 0;
	return (int16_t)(uint16_t)(bits & 0xffff);
}

static inline uint32_t plane_join(uint16_t hi, int16_t lo)
{
	return ((uint32_t)hi << 16) + (uint32_t)(int32_t)lo;
}

/* 64 random bits, a pure function of (seed, stream, index), without state or order. Philox4x32-10 of Salmon,
 * Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). The seed is the key,
 * (index, stream) are the low and high half of the counter, the result is the first two output words. */
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in [0, 1) with 53 bits; standard normal by Box-Muller in double. */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);
double rng_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* Uniform in [0, bound), bound > 0, with negligible bias (128-bit multiply-shift). */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound);

#endif
