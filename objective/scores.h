/* Numbers over all rows of an evaluation that are no means of rows, as libraries compute them: classes as
 * scikit-learn, correlations as SciPy, comparisons of vectors as the evaluators of sentence-transformers.
 *
 * All are computed in double, in the order of rows, so they do not depend on ranks or threads. Without rows a
 * function adds the same names, with NaN: what a run will measure is known before its first evaluation. A row
 * with NaN makes all that are computed from it NaN. */
#ifndef FERRY_OBJECTIVE_SCORES_H
#define FERRY_OBJECTIVE_SCORES_H

#include <stdint.h>

enum { SCORES_MAX = 12 };
struct scores {
	int count;
	struct {
		const char *name;
		double value; /* NaN: undefined, as the correlation with a constant */
	} of[SCORES_MAX];
};

/* The rows of an evaluation: vectors, or logits. Texts of a unit follow each other. */
struct pool; /* host/pool.h */
struct scored {
	int64_t rows, each;    /* texts; those of a unit */
	int64_t width, stride; /* of a vector; floats from one to the next */
	const float *row;      /* [rows, stride] a vector, then its facts (model/blocks/blocks.h) */
	const int64_t *text;   /* [rows] the first row with the same text */
	struct pool *pool;
	void (*each_task)(struct pool *pool, int64_t task_count,
	        void (*fn)(void *context, int64_t task, int worker), void *context);
};

/* precision, recall, f1 and matthews_correlation: with two classes of class 1, else the mean over the classes
 * that occur (_macro) and the mean weighted by their labels (_weighted). What is divided by 0 is 0.
 * ERR_NOMEM. */
int scores_classes(
        struct scores *out, const int32_t *label, const int32_t *found, int64_t count, int64_t classes);

double pearson(const double *a, const double *b, int64_t count);
/* Equal numbers have the mean of their ranks. ERR_NOMEM. */
int spearman(double *out, const double *a, const double *b, int64_t count);

/* The label of each row against the largest logit, the first of equal ones; against the number. ERR_NOMEM. */
int scores_of_logits(struct scores *out, const struct scored *rows);
int scores_of_numbers(struct scores *out, const struct scored *rows);

/* pearson_cosine, spearman_cosine: of the cosine of a unit's first two texts and its label. ERR_NOMEM. */
int scores_of_pairs(struct scores *out, const struct scored *rows);
/* cosine_accuracy: the share of units where the first text is nearer to the second than to the third. */
int scores_of_triplets(struct scores *out, const struct scored *rows);
/* cosine_accuracy@k, cosine_mrr@10, cosine_ndcg@10, cosine_map@100: each different first text of a unit looks
 * for its second texts among all different ones. ERR_NOMEM. */
int scores_of_retrieval(struct scores *out, const struct scored *rows);

#endif
