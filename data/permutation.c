/* Permutations of [0, count) by Feistel networks and by the swap-or-not shuffle. */
#include "data/permutation.h"

#include "base/num.h"

enum { FEISTEL_ROUNDS = 4, SWAP_ROUNDS_LEAST = 24, SWAP_ROUNDS_PER_BIT = 4 };

/* One pass of the network over 2 * half_bits bits. */
static uint64_t feistel(uint64_t seed, uint64_t stream, int half_bits, uint64_t x)
{
	uint64_t mask = ((uint64_t)1 << half_bits) - 1;
	uint64_t left = x >> half_bits, right = x & mask;

	for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
		uint64_t mixed = left ^ (rng_u64(seed, stream, round << 32 | right) & mask);
		left = right;
		right = mixed;
	}
	return left << half_bits | right;
}

static int64_t feistel_at(uint64_t seed, uint64_t stream, int64_t count, int64_t place)
{
	int half_bits = 1;
	uint64_t x = (uint64_t)place;

	while (half_bits < 31 && (uint64_t)count > (uint64_t)1 << (2 * half_bits))
		half_bits++;
	do /* a permutation of the larger set, so the walk returns to [0, count) */
		x = feistel(seed, stream, half_bits, x);
	while (x >= (uint64_t)count);
	return (int64_t)x;
}

/* The output function of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static int64_t swap_or_not_at(uint64_t seed, uint64_t stream, int64_t count, int64_t place)
{
	uint64_t key = rng_u64(seed, stream, 0), x = (uint64_t)place, n = (uint64_t)count;
	int rounds = SWAP_ROUNDS_LEAST;

	for (uint64_t reach = 1; reach < n; reach *= 2)
		rounds += SWAP_ROUNDS_PER_BIT;
	for (int round = 0; round < rounds; round++) {
		uint64_t round_key = mix64(key + 2 * (uint64_t)round * 0x9e3779b97f4a7c15u);
		uint64_t pivot = (uint64_t)(((unsigned __int128)round_key * n) >> 64);
		uint64_t partner = pivot >= x ? pivot - x : pivot + n - x;
		uint64_t pair = partner > x ? partner : x; /* the same for both, so both get the same bit */

		if (mix64(round_key ^ pair * 0xd6e8feb86659fd93u) >> 63)
			x = partner;
	}
	return (int64_t)x;
}

int64_t permutation_at(
        enum shuffle_version version, uint64_t seed, uint64_t stream, int64_t count, int64_t place)
{
	return version == SHUFFLE_FEISTEL ? feistel_at(seed, stream, count, place)
	                                  : swap_or_not_at(seed, stream, count, place);
}
