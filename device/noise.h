/* Random numbers that follow from what they are for: a text and its token, a module, a column. So they are
 * the same on every device, in every order of computation, for any number of ranks, and when a backward or a
 * resumed run draws them again.
 *
 * A token has a key of 64 bits, from the seed, the step, the row of the data and the position in it
 * (noise_token). Each module draws from numbers of its own.
 *
 * Source of the mixing: splitmix64 (Steele, Lea, Flood 2014). */
#ifndef FERRY_DEVICE_NOISE_H
#define FERRY_DEVICE_NOISE_H

#include <stdint.h>

#ifdef __CUDACC__
#define NOISE_INLINE static inline __host__ __device__
#else
#define NOISE_INLINE static inline
#endif

NOISE_INLINE uint64_t noise_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* step: a number of the run's seed and step. */
NOISE_INLINE uint64_t noise_token(uint64_t step, uint64_t row, uint64_t position)
{
	return noise_mix(noise_mix(step ^ noise_mix(row)) + position);
}

/* The module's number, from its name. */
NOISE_INLINE uint64_t noise_module(const char *name)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
	return hash;
}

/* The numbers of a token in a module, and that of one column: 32 bits, two columns from each draw. */
NOISE_INLINE uint64_t noise_row(uint64_t token, uint64_t module)
{
	return noise_mix(token ^ module);
}

NOISE_INLINE uint32_t noise_bits(uint64_t row, int64_t column)
{
	uint64_t two = noise_mix(row + (uint64_t)(column >> 1) * 0xd1342543de82ef95u);

	return (uint32_t)(column & 1 ? two >> 32 : two);
}

/* Values below this are dropped. */
NOISE_INLINE uint32_t noise_limit(double share)
{
	return (uint32_t)(share * 4294967296.0);
}

/* Uniform in (-1, 1), without 0. */
NOISE_INLINE float noise_uniform(uint32_t bits)
{
	return ((float)(bits >> 8) + 0.5f) * 0x1p-23f - 1.0f;
}

#endif
