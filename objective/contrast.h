/* Losses that compare vectors of documents: in double, on the host.
 *
 * Documents of a row follow each other: an anchor, its positive, and maybe negatives. sim(a, b) is the cosine
 * of two vectors, their dot product, or minus their distance. Names and meaning are those of
 * sentence-transformers:
 *
 *   MNRL           cross-entropy of `scale` times the similarity of an anchor with the positives and
 *                  negatives of all rows, where its own positive is right (MultipleNegativesRankingLoss).
 *                  `directions` adds other comparisons to the same softmax, or as means of a softmax each.
 *                  `hardness` adds a multiple of its similarity, as a constant, to negatives
 *   SYMMETRIC_MNRL the mean of that, and of the same from each positive to all anchors
 *   COSENT         log(1 + sum of exp(s_i - s_j) over pairs of rows of which j has the higher score), s being
 *                  scale times the similarity of the row's two texts
 *   ANGLE          the same, where s is |cosine + sine|, and the sine pairs each component of the first half
 *                  with one of the second. Negatives of a row are pairs with its anchor, of 1 minus its score
 *   COSINE         the square of the cosine minus the score
 *   CONTRASTIVE    half of d^2 where the label is 1, of max(0, margin - d)^2 where it is 0; d is a distance,
 *                  of the cosine 1 - cos
 *   ONLINE_CONTRASTIVE  the sum of d^2 over rows of label 1 that are farther than the nearest of label 0, and
 *                  of max(0, margin - d)^2 over rows of label 0 that are nearer than the farthest of label 1
 *   TRIPLET        max(0, d(a, p) - d(a, n) + margin)
 *   MARGIN_MSE     the mean over negatives of (sim(a, p) - sim(a, n) - score)^2
 *   MSE            the mean over the row's texts and their components of the square of the difference from
 *                  the teacher's vector. A text without one adds 0: another rank has it
 *
 * With `dims` (MatryoshkaLoss) the loss is a sum over them of a weight times the loss of the vectors' first
 * components, divided by their lengths.
 */
#ifndef FERRY_OBJECTIVE_CONTRAST_H
#define FERRY_OBJECTIVE_CONTRAST_H

#include "device/contrast_kind.h"

#include <stdint.h>

struct pool;
struct contrast {
	enum contrast_kind kind;
	enum contrast_similarity similarity; /* AUTO: the loss's own */
	double scale, margin;                /* margin 0: the loss's own */
	int directions;                      /* of MNRL; 0: DIRECTION_QUERY_TO_DOC */
	int is_per_direction;                /* 1: a softmax for each of them */
	enum contrast_hardness hardness;
	double hardness_strength;
	int dim_count; /* 0: the whole vectors, as they are */
	int64_t dim[CONTRAST_DIMS_MAX];
	double dim_weight[CONTRAST_DIMS_MAX];
	int64_t rows, each;    /* documents are rows * each */
	int64_t width, stride; /* of a vector; floats from one to the next */
	const float *vectors;  /* [rows * each] */
	const float *score;    /* [rows * each] a row's at its first text; of MARGIN_MSE at each negative */
	const float *const *teacher; /* [rows * each] of MSE, each [width] or NULL; else NULL */
	double *loss;                /* [rows] their sum over rows is rows times the loss */
	float *gradient;             /* [rows * each, stride] += weight times the loss's; NULL: not wanted */
	double weight;
	struct pool *pool;
	void (*each_task)(struct pool *pool, int64_t task_count,
	        void (*fn)(void *context, int64_t task, int worker), void *context);
};

/* ERR_NOMEM. */
int contrast_losses(const struct contrast *c);

#endif
