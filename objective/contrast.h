/* Losses that compare vectors of documents: in double, on the host.
 *
 * Documents of a row follow each other: an anchor, its positive, and maybe negatives. cos(a, b) is of the two
 * divided by their lengths. Names and meaning are those of sentence-transformers:
 *
 *   MNRL           cross-entropy of `scale` times the cosines of an anchor with the positives and negatives
 *                  of all rows, where its own positive is right (MultipleNegativesRankingLoss)
 *   SYMMETRIC_MNRL the mean of that, and of the same from each positive to all anchors
 *   COSENT         log(1 + sum of exp(s_i - s_j) over pairs of rows of which j has the higher score), s being
 *                  scale times the cosine of the row's two texts
 *   COSINE         the square of the cosine minus the score
 *   CONTRASTIVE    half of d^2 where the label is 1, of max(0, margin - d)^2 where it is 0; d is 1 - cos
 *   TRIPLET        max(0, |a - p| - |a - n| + margin)
 */
#ifndef FERRY_OBJECTIVE_CONTRAST_H
#define FERRY_OBJECTIVE_CONTRAST_H

#include "device/contrast_kind.h"

#include <stdint.h>

struct pool;
struct contrast {
	enum contrast_kind kind;
	double scale, margin;  /* margin 0: the loss's own */
	int64_t rows, each;    /* documents are rows * each */
	int64_t width, stride; /* of a vector; floats from one to the next */
	const float *vectors;  /* [rows * each] */
	const float *score;    /* [rows] */
	double *loss;          /* [rows] their sum over rows is rows times the loss */
	float *gradient;       /* [rows * each, stride] += weight times the loss's; NULL: not wanted */
	double weight;
	struct pool *pool;
	void (*each_task)(struct pool *pool, int64_t task_count,
	        void (*fn)(void *context, int64_t task, int worker), void *context);
};

/* ERR_NOMEM. */
int contrast_losses(const struct contrast *c);

#endif
