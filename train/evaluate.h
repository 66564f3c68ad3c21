/* Loss over the rows of an open session. */
#ifndef FERRY_TRAIN_EVALUATE_H
#define FERRY_TRAIN_EVALUATE_H

#include "train/session.h"

/* A micro-batch as the engine takes it; it borrows the arrays. */
void host_batch_of(struct host_batch *to, const struct micro_batch *from);

/* Mean token loss over all rows of s->eval, of mixed sets those of the first epoch: sum in double, in order.
 * row_fn NULL, or called per row.
 * Collective: each rank runs its rows, and all get the sums. */
struct evaluation {
	double loss_sum;
	int64_t targets, tokens, rows;
	double seconds;
};
typedef int evaluate_row_fn(void *context, int64_t row, const float *losses, int64_t count);
int evaluate(struct session *s, struct evaluation *result, evaluate_row_fn *row_fn, void *context);

#endif
