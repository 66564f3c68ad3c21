/* Seeded permutations: the order of rows, and other seeded choices.
 *
 * A permutation is never stored. permutation_at computes the image of each place on its own. */
#ifndef FERRY_DATA_PERMUTATION_H
#define FERRY_DATA_PERMUTATION_H

#include <stdint.h>

/* How a seed becomes a permutation. A checkpoint stores it: a resumed run keeps its order of rows. */
enum { SHUFFLE_VERSION = 2 };

/* The image of `place` in [0, count) under the permutation of (seed, stream). Takes O(log count) time.
 *
 * It is the swap-or-not shuffle (Hoang, Morris, Rogaway 2012). A round has a key K. It pairs
 * every x with (K - x) mod count, and one bit decides whether it swaps a pair. After 24 + 4 log2(count)
 * rounds, chi-square tests of places, neighbours and whole permutations find nothing. */
int64_t permutation_at(uint64_t seed, uint64_t stream, int64_t count, int64_t place);

enum permutation_stream {
	PERMUTATION_STREAM_EVAL_SPLIT = 1,
	PERMUTATION_STREAM_EPOCH = 1 << 16, /* plus the epoch */
};
/* The stream of a mixed data set: this value times the set's number (from 1), plus its completed passes. */
#define PERMUTATION_STREAM_SET ((uint64_t)1 << 48)
/* The streams of data sets that stay apart (data/turns.h), plus the epoch: the order of turns, and the
 * rows of a set by its number (from 0). */
#define PERMUTATION_STREAM_TURNS ((uint64_t)1 << 60)
#define PERMUTATION_STREAM_APART(set) (((uint64_t)1 << 61) + ((uint64_t)(set) << 48))

#endif
