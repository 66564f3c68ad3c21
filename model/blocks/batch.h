/* A micro-batch: documents one after the other, without padding; on the device and in host memory.
 *
 * All micro-batches have the first arrays. What else an objective needs it lists itself
 * (objective/objective.h); own[i] is the i-th array of that list. */
#ifndef FERRY_MODEL_BLOCKS_BATCH_H
#define FERRY_MODEL_BLOCKS_BATCH_H

#include "base/batch_rule.h" /* IWYU pragma: export */
#include "device/addr.h"

#include <stdint.h>

/* Arrays are int32, unless the objective says otherwise. model_position_rows writes `position`. target_row
 * has the indices of tokens at which the head computes something, such as those that are followed by a
 * target. */
struct device_batch {
	int64_t tokens, targets, documents;
	dev_addr id, position, doc_start, doc_end; /* [tokens] */
	dev_addr target_row;                       /* [targets] */
	dev_addr row;   /* [tokens] places of their rows where only these are there (struct stage_memory) */
	dev_addr noise; /* U64 [tokens], keys (device/noise.h); DEV_NONE: nothing is dropped or perturbed */
	dev_addr type; /* [tokens] 1 in the second text of a pair, else 0; DEV_NONE: the objective has none */
	dev_addr own[BATCH_OWN_MAX];
};

/* The same in host memory. tokens 0: an empty micro-batch. */
struct objective_use; /* objective/objective.h */
struct host_batch {
	int64_t tokens, targets, documents;
	const int32_t *id, *position, *doc_start, *doc_end, *target_row;
	const void *own[BATCH_OWN_MAX]; /* NULL: nobody reads it */
	const float *teacher;           /* [documents, width of a vector]; NULL: none */
	double share; /* 1 / the step's micro-batches with tokens, on all ranks; 0: unknown */
	/* The keys of noise follow from a number of the step and the data's row of each document. */
	uint64_t noise;
	const int64_t *row;              /* [documents]; NULL: all 0 */
	const struct objective_use *use; /* settings of the objective that count for it; NULL: the plan's */
	const struct label_tag *tag;     /* of each class, in evaluations of classes of words; else NULL */
};

#endif
