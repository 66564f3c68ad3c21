/* Data sets mixed by weights: how many rows of each an epoch holds, and which.
 *
 * An epoch draws from the sets in the ratio of their weights, exact to one row. It ends when the first set is
 * used up (no row occurs twice in an epoch), or when the last one is (every row occurs). Each set is drawn
 * from by one permutation after another, on through the epochs: epoch e of a set with `draws` rows an epoch
 * takes its draws [e * draws, (e + 1) * draws). So a set of which an epoch takes a part is used up over
 * several epochs before a row of it comes again.
 *
 * A row is what the sampler draws: a row of the data set, or a bin of packed rows. Plain values, no memory,
 * no state.
 */
#ifndef FERRY_DATA_MIX_H
#define FERRY_DATA_MIX_H

#include <stdint.h>

#include "data/source/sets.h"

/* What a seed and weights give is fixed by a version, which checkpoints name. */
enum { MIX_VERSION_NEWEST = 1 };

enum mix_end { MIX_FIRST_EXHAUSTED, MIX_ALL_EXHAUSTED };

struct mix_set {
	int64_t first, row_count; /* rows [first, first + row_count) are the set's */
	double weight;
	int64_t draws; /* of each epoch; by mix_make */
};

struct mix {
	struct mix_set sets[DATA_SETS_MAX];
	int set_count; /* 0: nothing is mixed */
	enum mix_end end;
	int64_t epoch_rows; /* by mix_make */
};

/* Fills in draws and epoch_rows. ERR_INPUT: a set of no rows, a weight that gives a set no row in an epoch,
 * an epoch beyond 2^53 rows; *bad is the set. */
int mix_make(struct mix *m, int *bad);

/* The `nth` draw of an epoch from `set`, without a shuffle in the order of the rows. */
enum mix_order { MIX_ORDER_FILE, MIX_ORDER_SHUFFLE };
int64_t mix_row(
        const struct mix *m, int set, int64_t epoch, int64_t nth, enum mix_order order, uint64_t seed);

/* The row at place x (0 <= x < epoch_rows) of an epoch, sets one behind the other. */
int64_t mix_place(const struct mix *m, int64_t epoch, int64_t x, enum mix_order order, uint64_t seed);

#endif
