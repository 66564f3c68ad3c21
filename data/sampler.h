/* Chooses the rows of a step: a pure function of (rows, seed, step), so a run resumes from its step alone.
 *
 * A *row* here is a row of the dataset, or a bin of packed rows. An epoch is one permutation of all rows,
 * keyed by (seed, epoch). It is never stored: sampler_draw computes any place of it. A *step* takes
 * step_rows = batch_rows * accumulation * world_size draws; the last step of an epoch takes the rest, so no
 * step mixes epochs. Inside a step, micro-batch `index` of rank r takes the draws [(index * world_size + r)
 * * batch_rows, + batch_rows): the rows of a step do not depend on the number of ranks. Steps count from 0
 * and continue over epochs.
 *
 * Plain values without memory or state: copy freely, use in any thread; with `steps` in one at a time.
 */
#ifndef FERRY_DATA_SAMPLER_H
#define FERRY_DATA_SAMPLER_H

#include <stdint.h>

#include "data/mix.h"
#include "data/permutation.h"

enum sampler_order { SAMPLER_ORDER_FILE, SAMPLER_ORDER_SHUFFLE };

/* Steps that are not made of an epoch's places in order; their maker embeds it (data/batches.h,
 * data/turns.h). */
struct sampler_steps {
	int64_t per_epoch, epoch_rows;
	int64_t (*rows)(struct sampler_steps *s, int64_t epoch, int64_t step); /* how many a step has */
	int64_t (*row)(struct sampler_steps *s, int64_t epoch, int64_t step, int64_t place);
	double (*done)(
	        struct sampler_steps *s, int64_t epoch, int64_t step);    /* share of the epoch before it */
	int (*set)(struct sampler_steps *s, int64_t epoch, int64_t step); /* NULL: always 0 */
};

struct sampler {
	int64_t row_count;     /* of an epoch */
	const struct mix *mix; /* NULL, or the mix of weighted data sets; row_count is then its epoch_rows */
	enum sampler_order order;
	uint64_t seed;
	uint64_t stream;      /* of the permutation of the first epoch; 0: PERMUTATION_STREAM_EPOCH */
	int64_t batch_rows;   /* rows of one micro-batch of one rank */
	int64_t accumulation; /* micro-batches of one rank in a full step */
	int world_size, rank;
	int64_t step_rows, steps_per_epoch; /* derived by sampler_init */
	struct sampler_steps *steps;        /* the rows of each step; NULL: by their places */
};

/* Checks the fields and fills in the two derived ones. ERR_RANGE names the invalid field. */
int sampler_init(struct sampler *s);

/* The row at `place` (0 <= place < row_count) of an epoch. Over all places each row occurs once; for mixed
 * data sets see data/mix.h. */
int64_t sampler_draw(const struct sampler *s, int64_t epoch, int64_t place);

/* Steps are these from now on. */
void sampler_use(struct sampler *s, struct sampler_steps *steps);

/* The set of a step; 0: there is one. */
int sampler_step_set(const struct sampler *s, int64_t step);

/* Rows of a step on all ranks, and the row at a place of it. */
int64_t sampler_step_rows(const struct sampler *s, int64_t step);
int64_t sampler_step_row(const struct sampler *s, int64_t step, int64_t place);

/* Steps of a whole run: max_steps if positive, else ceil(epochs * steps_per_epoch), at least 1. ERR_RANGE if
 * neither is positive or the count exceeds 2^53. */
int sampler_run_steps(int64_t *step_count, const struct sampler *s, double epochs, int64_t max_steps);

/* The most micro-batches of a step. */
int64_t sampler_micro_most(const struct sampler *s);

/* Micro-batches of a step, the same on every rank. With several ranks the last one of an epoch may be
 * empty on some of them (sampler_rows returns 0). */
int64_t sampler_micro_count(const struct sampler *s, int64_t step);

/* Fills rows[batch_rows] with micro-batch `index` of `step` on this rank, in order; returns their number. */
int64_t sampler_rows(const struct sampler *s, int64_t *rows, int64_t step, int64_t index);

/* Epochs done after `step_count` steps, as a fraction: `epoch` in the metrics. */
double sampler_epochs_done(const struct sampler *s, int64_t step_count);

#endif
