/* Seeded permutations: the order of rows, and other seeded choices.
 *
 * A permutation is never stored. permutation_at computes the image of each place on its own. */
#ifndef FERRY_DATA_PERMUTATION_H
#define FERRY_DATA_PERMUTATION_H

#include <stdint.h>

/* Which algorithm turns a seed into a permutation. A checkpoint stores its run's version, so that a resumed
 * run keeps its order of rows. */
enum shuffle_version {
	SHUFFLE_FEISTEL = 1,     /* not uniform for few rows; checkpoints without a version used it */
	SHUFFLE_SWAP_OR_NOT = 2, /* uniform */
	SHUFFLE_NEWEST = SHUFFLE_SWAP_OR_NOT
};

/* The image of `place` in [0, count) under the permutation of (seed, stream). Takes O(log count) time.
 *
 * SHUFFLE_SWAP_OR_NOT: the swap-or-not shuffle (Hoang, Morris, Rogaway 2012). A round has a key K. It pairs
 * every x with (K - x) mod count, and one bit decides whether it swaps a pair. After 24 + 4 log2(count)
 * rounds, chi-square tests of places, neighbours and whole permutations find nothing.
 *
 * SHUFFLE_FEISTEL: four Feistel rounds over the next even power of two, repeated until the result is below
 * count (Black and Rogaway 2002). With 5 rows, the frequency of a row at a place is off by up to 32 %. */
int64_t permutation_at(
        enum shuffle_version version, uint64_t seed, uint64_t stream, int64_t count, int64_t place);

enum permutation_stream {
	PERMUTATION_STREAM_EVAL_SPLIT = 1,
	PERMUTATION_STREAM_EPOCH = 1 << 16, /* plus the epoch */
};
/* The stream of a mixed data set: this value times the set's number (from 1), plus its completed passes. */
#define PERMUTATION_STREAM_SET ((uint64_t)1 << 48)

#endif
