/* Seeded permutations that are computed place by place, without memory: the order of rows, and other seeded
 * choices.
 */
#ifndef FERRY_DATA_PERMUTATION_H
#define FERRY_DATA_PERMUTATION_H

#include <stdint.h>

/* Which permutation stands behind a seed. A checkpoint names the one that its run was trained with, so that
 * the run goes on in the order that it began with. */
enum shuffle_version {
	SHUFFLE_FEISTEL = 1,     /* not uniform for few rows: checkpoints that name none have it */
	SHUFFLE_SWAP_OR_NOT = 2, /* uniform */
	SHUFFLE_NEWEST = SHUFFLE_SWAP_OR_NOT
};

/* The image of `place` in
 * [0, count) under the permutation of (seed, stream). Each costs O(log count) and needs no memory.
 *
 * SHUFFLE_SWAP_OR_NOT: the swap-or-not shuffle (Hoang, Morris, Rogaway 2012). A round pairs every x with K -
 * x mod count and swaps each pair or not, by one bit. 24 + 4 log2(count) rounds leave nothing that chi-square
 * finds in places, neighbours or whole permutations. SHUFFLE_FEISTEL: four Feistel rounds over the next even
 * power of two, walked until they fall into the range (Black and Rogaway 2002). Places are off by up to 32 %
 * (5 rows). */
int64_t permutation_at(
        enum shuffle_version version, uint64_t seed, uint64_t stream, int64_t count, int64_t place);

enum permutation_stream {
	PERMUTATION_STREAM_EVAL_SPLIT = 1,
	PERMUTATION_STREAM_EPOCH = 1 << 16, /* plus the epoch */
};
/* Times the number of a mixed data set from 1, plus how often it has been used up. */
#define PERMUTATION_STREAM_SET ((uint64_t)1 << 48)

#endif
