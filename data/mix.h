/* Mixes data sets by weights: the number of rows of each set in an epoch, and their choice.
 *
 * An epoch draws from the sets in the ratio of their weights, exact to one row. It ends when the first set
 * is used up (no row occurs twice in an epoch), or when the last one is (every row occurs). Draws from a set
 * follow one permutation after another and continue over epochs: epoch e takes the draws [e * draws, (e + 1)
 * * draws) of a set. So a large set is used up over several epochs before one of its rows repeats.
 *
 * A row here is a row of the data set, or a bin of packed rows. Plain values without memory or state.
 */
#ifndef FERRY_DATA_MIX_H
#define FERRY_DATA_MIX_H

#include <stdint.h>

#include "data/source/sets.h"

/* Version of the result for a seed and weights; checkpoints store it. */
enum { MIX_VERSION_NEWEST = 1 };

enum mix_end { MIX_FIRST_EXHAUSTED, MIX_ALL_EXHAUSTED };

struct mix_set {
	int64_t first, row_count; /* rows [first, first + row_count) are the set's */
	double weight;
	int64_t draws; /* per epoch; set by mix_make */
};

struct mix {
	struct mix_set sets[DATA_SETS_MAX];
	int set_count; /* 0: no mix */
	enum mix_end end;
	int64_t epoch_rows; /* by mix_make */
};

/* Fills in draws and epoch_rows. ERR_INPUT with the set in *bad: a set without rows, or a weight that gives a
 * set less than one row or more than 2^47 rows per epoch. */
int mix_make(struct mix *m, int *bad);

/* The `nth` draw of an epoch from `set`; without a shuffle in row order. */
enum mix_order { MIX_ORDER_FILE, MIX_ORDER_SHUFFLE };
int64_t mix_row(
        const struct mix *m, int set, int64_t epoch, int64_t nth, enum mix_order order, uint64_t seed);

/* The row at place x (0 <= x < epoch_rows) of an epoch, one set after the other. */
int64_t mix_place(const struct mix *m, int64_t epoch, int64_t x, enum mix_order order, uint64_t seed);

#endif
