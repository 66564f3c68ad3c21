/* Permutations of [0, count) by the swap-or-not shuffle. */
#include "data/permutation.h"

#include "base/num.h"

enum { SWAP_ROUNDS_LEAST = 24, SWAP_ROUNDS_PER_BIT = 4 };

/* The output function of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

int64_t permutation_at(uint64_t seed, uint64_t stream, int64_t count, int64_t place)
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
