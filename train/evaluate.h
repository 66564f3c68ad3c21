/* Computes the loss over the rows of an open session. */
#ifndef FERRY_TRAIN_EVALUATE_H
#define FERRY_TRAIN_EVALUATE_H

#include "train/session.h"

/* Converts a micro-batch for the engine; borrows the arrays. */
void host_batch_of(struct host_batch *to, const struct micro_batch *from);

/* Computes the loss over all of these rows, s->eval or a pass of s (with mixed sets over those of the first
 * epoch), summed in double, in order. Calls row_fn for each row if not NULL. Collective: each rank runs its
 * rows, and all get the sums. ERR_STOPPED: s->is_stopped saw a signal, on any rank. */
struct evaluated_set {
	const char *name;                /* as in session.losses */
	double sums[OBJECTIVE_SUMS_MAX]; /* the objective's; the first is of the loss */
	int64_t units;                   /* rows as they are drawn: of several texts, whole bins */
	struct scores scores;
};
struct evaluation {
	double sums[OBJECTIVE_SUMS_MAX];
	int64_t targets, tokens, rows, units; /* rows of the data: documents */
	double seconds;
	struct scores scores; /* of all rows; none where sets stay apart */
	int set_count;        /* of data sets that stay apart, each by itself; else 0 */
	struct evaluated_set sets[DATA_SETS_MAX];
};
typedef int evaluate_row_fn(void *context, int64_t row, const float *losses, int64_t count);
int evaluate(struct session *s, struct session_rows *rows, struct evaluation *result, evaluate_row_fn *row_fn,
        void *context);

/* Bytes of the vectors of all rows that evaluations of s->eval keep for scores; each rank has all. */
int64_t evaluate_bytes(const struct session *s);

/* What these rows' evaluations will measure: names, with NaN. ERR_NOMEM. */
int evaluate_names(struct evaluation *out, const struct session *s, const struct session_rows *rows);

/* Text behind "loss 1.234": what the objective says, and the scores. */
void evaluate_say(struct str *out, const struct objective *o, const struct objective_means *means);

/* Loss and scores of each set, with text before each. */
void evaluate_say_sets(struct str *out, const struct evaluation *e, const char *before);

#endif
