/* A micro-batch as the device wants it: documents one after the other, without padding.
 *
 * Every row (or bin of packed rows) that the sampler drew puts its documents behind each other into one
 * flat list of tokens. What keeps them apart is explicit, per token: its position in its own document
 * and where that document begins and ends in this micro-batch. The loss convention is already applied: a
 * token predicts the label of the next one of its document; those whose label is DATASET_IGNORE are no
 * targets.
 *
 * Sizes of all micro-batches of a run are known before it starts (batch_limits_find), because device
 * memory is planned from them. A micro_batch is allocated once for those limits and filled again and again.
 */
#ifndef FERRY_DATA_BATCH_H
#define FERRY_DATA_BATCH_H

#include <stdint.h>

#include "data/dataset.h"
#include "data/packing.h"
#include "data/sampler.h"

/* Where micro-batches come from; borrowed, read-only. */
struct batch_source {
	const struct dataset *data;
	const struct packing *packing; /* NULL = the sampler draws rows of the dataset, else bins */
	struct sampler sampler;        /* its row_count is batch_source_rows(), or the mix's epoch_rows */
};

/* The largest of each over micro-batches; the counts a micro_batch has room for. */
struct batch_limits {
	int64_t tokens, targets, docs, rows;
	int64_t doc_tokens; /* the longest document */
};

struct micro_batch {
	int64_t token_count, target_count, doc_count, row_count;
	int32_t *ids;           /* [token_count] */
	int32_t *positions;     /* [token_count] from 0 in each document */
	int32_t *doc_start;     /* [token_count] index of the first token of the token's own document */
	int32_t *doc_end;       /* [token_count] one past its last */
	int32_t *target_rows;   /* [target_count] positions i that have a target, ascending */
	int32_t *target_labels; /* [target_count] the label that each of them predicts */
	int32_t *doc_offset;    /* [doc_count + 1] where each document begins; the last is token_count */
	int64_t *doc_row;       /* [doc_count] row of the dataset */
	int32_t *row_start;     /* [row_count + 1] where each drawn row or bin begins */
	int64_t *rows;          /* [row_count] what the sampler drew */
	struct batch_limits limits;
	struct row_buffer buffer; /* of a row that is read from a file */
};

/* Rows that a sampler over this source draws from: bins where packed. */
int64_t batch_source_rows(const struct dataset *data, const struct packing *packing);

/* Limits over the micro-batches of steps [0, step_count) on all ranks. Exact up to 10^8 draws; beyond,
 * batch_rows times the largest row. ERR_RANGE when a micro-batch would exceed 2^31 - 1 tokens. */
int batch_limits_find(struct batch_limits *limits, const struct batch_source *source, int64_t step_count);

int micro_batch_alloc(struct micro_batch **mb, const struct batch_limits *limits);
void micro_batch_free(struct micro_batch *mb);

/* Fills mb with micro-batch `index` of `step` on the sampler's rank. ERR_RANGE when it would exceed mb's
 * limits; errors of reading rows from files. An empty micro-batch (last step of an epoch, several ranks) has
 * all counts 0. */
int batch_build(struct micro_batch *mb, const struct batch_source *source, int64_t step, int64_t index);

/* Targets and tokens of a whole step over all micro-batches and ranks, without building them: the loss
 * of a step is a sum over its targets divided by this count. Either pointer may be NULL. */
void batch_step_counts(
        int64_t *target_count, int64_t *token_count, const struct batch_source *source, int64_t step);

/* Steps of [0, step_count) without a single target; -1 where they are too many to count. */
int64_t batch_untrained_steps(const struct batch_source *source, int64_t step_count);

#endif
