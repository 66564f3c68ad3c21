/* A micro-batch in the device's form: documents one after the other, without padding.
 *
 * The documents of all drawn rows (or bins of packed rows) form one flat list of tokens. Per-token arrays
 * separate them: the position in the token's own document, and where that document begins and ends in the
 * micro-batch. What the targets are, and which further arrays there are, is the objective's matter (struct
 * batch_rule).
 *
 * The maximum sizes of a run's micro-batches are known before it starts (batch_limits_find), because plans
 * of device memory need them. A micro_batch is allocated once for these limits and refilled.
 */
#ifndef FERRY_DATA_BATCH_H
#define FERRY_DATA_BATCH_H

#include <stdint.h>

#include "base/batch_rule.h"
#include "data/packing.h"
#include "data/rows/dataset.h"
#include "data/sampler.h"

/* The source of micro-batches; borrowed, read-only. */
struct batch_source {
	const struct dataset *data;
	const struct packing *packing; /* NULL = the sampler draws rows of the dataset, else bins */
	const struct batch_rule *rule;
	struct batch_draws draws;
	const double *row_value; /* [row_count of data] a number of the caller for each row; NULL: none */
	struct sampler sampler;  /* its row_count is batch_source_rows(), or the mix's epoch_rows */
};

/* The maximum of each count over micro-batches: the capacity of a micro_batch. */
struct batch_limits {
	int64_t tokens, targets, docs, rows;
	int64_t doc_tokens;      /* the longest document */
	int64_t vector_count;    /* numbers of each document's vector of a teacher; 0: it has none */
	int64_t untrained_steps; /* steps without any target; -1: too many to count */
};

struct micro_batch {
	int64_t token_count, target_count, doc_count, row_count;
	int32_t *ids;             /* [token_count] */
	int32_t *positions;       /* [token_count] from 0 in each document */
	int32_t *doc_start;       /* [token_count] index of the first token of the token's own document */
	int32_t *doc_end;         /* [token_count] one past its last */
	int32_t *target_rows;     /* [target_count] tokens that the head works at, each once */
	int32_t *doc_offset;      /* [doc_count + 1] where each document begins; the last is token_count */
	int32_t *doc_target;      /* [doc_count + 1] where the targets of each document begin */
	int64_t *doc_row;         /* [doc_count] row of the dataset */
	int32_t *row_start;       /* [row_count + 1] where each drawn row or bin begins */
	int64_t *rows;            /* [row_count] the drawn rows or bins */
	void *own[BATCH_OWN_MAX]; /* arrays of the rule */
	float *teacher; /* [doc_count, limits.vector_count] vectors of the rows; stays on the host */
	struct batch_limits limits;
	struct row_buffer buffer; /* for rows in files */
};

/* Number of rows that a sampler draws from; with packing the number of bins. */
int64_t batch_source_rows(const struct dataset *data, const struct packing *packing);

/* Limits over the micro-batches of steps [0, step_count) on all ranks. Exact up to 10^8 draws; beyond,
 * batch_rows times the largest row. ERR_RANGE if a micro-batch would exceed 2^31 - 1 tokens. */
int batch_limits_find(struct batch_limits *limits, const struct batch_source *source, int64_t step_count);

/* What a rule adds to. The document's tokens are in the micro-batch, its targets not yet. */
struct batch_document {
	struct row_view row;
	int32_t first_token;
	int64_t index; /* among the documents of the micro-batch */
	int64_t place; /* among those of its drawn row or bin */
	double value;  /* the row's, or 0 */
	const struct batch_draws *draws;
	int64_t epoch, data_row; /* the row of the data set */
};

/* Bytes of `teacher`. */
int64_t micro_batch_teacher_bytes(const struct batch_limits *limits);

int micro_batch_alloc(
        struct micro_batch **mb, const struct batch_limits *limits, const struct batch_rule *rule);
void micro_batch_free(struct micro_batch *mb);

/* Fills mb with micro-batch `index` of `step` on the sampler's rank. ERR_RANGE if it would exceed mb's
 * limits; errors of reading rows from files. An empty micro-batch (last step of an epoch, several ranks) has
 * all counts 0. */
int batch_build(struct micro_batch *mb, const struct batch_source *source, int64_t step, int64_t index);

/* Targets and tokens of a whole step over all micro-batches and ranks, without building them: the loss
 * of a step is a sum over its targets divided by this count. Either pointer may be NULL. Errors of reading
 * rows from files. */
int batch_step_counts(
        int64_t *target_count, int64_t *token_count, const struct batch_source *source, int64_t step);

/* Rows that a whole step draws, over all ranks. */
int64_t batch_step_rows(const struct batch_source *source, int64_t step);

#endif
