/* Which rows a step trains on: a pure function of (rows, seed, step), so a run resumes by its step alone.
 *
 * A *row* here is one thing to draw: a row of the dataset, or a bin of packed rows. An epoch is one
 * permutation of all rows, keyed by (seed, epoch), never stored: sampler_draw computes any place of it.
 * A *step* takes step_rows = batch_rows * accumulation * world_size draws; the last step of an epoch takes
 * what is left, so no step mixes epochs. Inside a step, micro-batch `index` of rank r takes the draws
 * [(index * world_size + r) * batch_rows, + batch_rows): the rows of a step do not depend on how many
 * ranks share it. Steps count from 0 and go on over epochs.
 *
 * Plain values, no memory, no state: copy freely, any thread.
 */
#ifndef FERRY_DATA_SAMPLER_H
#define FERRY_DATA_SAMPLER_H

#include <stdint.h>

enum sampler_order { SAMPLER_ORDER_FILE, SAMPLER_ORDER_SHUFFLE };

/* Which permutation stands behind a seed. A checkpoint names the one that its run was trained with, so that
 * the run goes on in the order that it began with. */
enum shuffle_version {
	SHUFFLE_FEISTEL = 1,     /* not uniform for few rows: checkpoints that name none have it */
	SHUFFLE_SWAP_OR_NOT = 2, /* uniform */
	SHUFFLE_NEWEST = SHUFFLE_SWAP_OR_NOT
};

struct sampler {
	int64_t row_count;
	enum sampler_order order;
	enum shuffle_version shuffle;
	uint64_t seed;
	int64_t batch_rows;   /* rows of one micro-batch of one rank */
	int64_t accumulation; /* micro-batches of one rank in a full step */
	int world_size, rank;
	int64_t step_rows, steps_per_epoch; /* derived by sampler_init */
};

/* Checks the first eight fields and fills in the derived two. ERR_RANGE names the field that is wrong. */
int sampler_init(struct sampler *s);

/* The row at `place` (0 <= place < row_count) of an epoch. Over all places each row occurs once. */
int64_t sampler_draw(const struct sampler *s, int64_t epoch, int64_t place);

/* Steps of a whole run: max_steps when it is positive, else ceil(epochs * steps_per_epoch), at least 1.
 * ERR_RANGE when neither is positive or the count is beyond 2^53. */
int sampler_run_steps(int64_t *step_count, const struct sampler *s, double epochs, int64_t max_steps);

/* Micro-batches of a step, the same on every rank. With several ranks the last one of an epoch may be
 * empty on some of them (sampler_rows returns 0). */
int64_t sampler_micro_count(const struct sampler *s, int64_t step);

/* Rows of micro-batch `index` of `step` on this rank, in order, into rows[batch_rows]; returns how many. */
int64_t sampler_rows(const struct sampler *s, int64_t *rows, int64_t step, int64_t index);

/* Epochs done after `step_count` steps, with its fraction: what metrics call `epoch`. */
double sampler_epochs_done(const struct sampler *s, int64_t step_count);

/* The permutation behind the order, for others that need a seeded choice: the image of `place` in
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

#endif
