/* Rows for evaluation from the data that is trained on (eval_split). */
#ifndef FERRY_DATA_EVAL_SPLIT_H
#define FERRY_DATA_EVAL_SPLIT_H

#include "data/permutation.h"
#include "data/rows/dataset.h"

/* Moves rows of `d` into a new dataset for evaluation. Both keep file order and share the storage. `part`
 * below 1 is a fraction of the rows (rounded up), from 1 on a number of rows. The rows taken are those at
 * the first places of permutation_at(seed, PERMUTATION_STREAM_EVAL_SPLIT, row_count, .): a pure function
 * of these. Pairs move whole: `part` and the places are of pairs. Of sets that stay apart it is a part of
 * each. ERR_INPUT if one of the two would have no row. */
int dataset_split(struct dataset **eval, struct dataset *d, double part, uint64_t seed);

#endif
