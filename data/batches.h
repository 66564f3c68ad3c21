/* Steps without duplicates: rows of an epoch, grouped so that no text occurs twice in a step.
 *
 * Rows come in the order of the epoch. Each goes to the first step that has room and none of its texts, as
 * in the batch sampler NO_DUPLICATES of sentence-transformers, so the last steps of an epoch may be short.
 * Every epoch has each row once, and as many steps as the first one.
 *
 * A pure function of rows, seed and epoch. One epoch is kept at a time, so one thread at a time may ask. */
#ifndef FERRY_DATA_BATCHES_H
#define FERRY_DATA_BATCHES_H

#include "data/sampler.h"

struct batches;

/* text[row_count * each]: equal numbers are equal texts. The sampler is copied, and has no mix. ERR_NOMEM. */
int batches_open(struct batches **b, const struct sampler *s, const uint64_t *text, int64_t each);
void batches_close(struct batches *b);

/* For sampler_use. */
struct sampler_steps *batches_steps(struct batches *b);

int64_t batches_per_epoch(const struct batches *b);

/* Rows of a step of an epoch; how many. */
int64_t batches_rows(struct batches *b, const int64_t **rows, int64_t epoch, int64_t step);

/* Rows of the epoch before a step of it. */
int64_t batches_rows_before(struct batches *b, int64_t epoch, int64_t step);

#endif
