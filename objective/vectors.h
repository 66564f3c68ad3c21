/* The head of objectives over vectors: documents become pooled states of their tokens, through the layers of
 * model/pooling.h.
 *
 * HEAD_VECTORS makes them on the device, losses come from the host (struct vectors_pass), and HEAD_GRADIENTS
 * does the backward. A document has one target, whose row is its first token. */
#ifndef FERRY_OBJECTIVE_VECTORS_H
#define FERRY_OBJECTIVE_VECTORS_H

#include "objective/objective.h"

/* The arrays of a micro-batch. LABEL is the first label of the row as it is stored, 32 bits of a float; the
 * second one is where the second text of a pair begins. */
enum {
	VECTORS_LABEL,
	VECTORS_TOKENS,
	VECTORS_PLACE,
	VECTORS_DOCUMENT,
	VECTORS_LAST,
	VECTORS_TYPE,
	VECTORS_MEAN,  /* 1 / tokens */
	VECTORS_ROOT,  /* 1 / sqrt(tokens) */
	VECTORS_WEIGHT /* of a token in the weighted mean */
};
#define VECTORS_BATCH                                                                                        \
	{                                                                                                    \
		.array = {[VECTORS_LABEL] = {"label", DTYPE_F32, PER_DOCUMENT},                              \
		        [VECTORS_TOKENS] = {"length", DTYPE_F32, PER_DOCUMENT},                              \
		        [VECTORS_PLACE] = {"place in its row", DTYPE_F32, PER_DOCUMENT},                     \
		        [VECTORS_DOCUMENT] = {"document", DTYPE_I32, PER_TOKEN},                             \
		        [VECTORS_LAST] = {"last token", DTYPE_I32, PER_DOCUMENT},                            \
		        [VECTORS_TYPE] = {"type", DTYPE_I32, PER_TOKEN},                                     \
		        [VECTORS_MEAN] = {"weight in the mean", DTYPE_F32, PER_DOCUMENT},                    \
		        [VECTORS_ROOT] = {"weight by the root", DTYPE_F32, PER_DOCUMENT},                    \
		        [VECTORS_WEIGHT] = {"weight of a token", DTYPE_F32, PER_TOKEN}},                     \
		.types = VECTORS_TYPE + 1, .targets = vectors_targets, .add = vectors_add                    \
	}

int64_t vectors_targets(const struct batch_draws *draws, const struct dataset *data, int64_t row);
void vectors_add(struct micro_batch *mb, const struct batch_document *document);

extern const struct head_pass vectors_head;
int vectors_check(const struct model *model);
int64_t vectors_width(const struct model *model);

#endif
