/* What the losses of vectors share: the vectors that they compare, and how gradients reach those.
 * Internal. */
#ifndef FERRY_OBJECTIVE_CONTRAST_UNITS_H
#define FERRY_OBJECTIVE_CONTRAST_UNITS_H

#include "objective/contrast.h"

/* The vectors that a loss compares, [documents, width], and the gradients of these: of length 1, or as
 * they are. */
struct units {
	const struct contrast *c;
	int is_plain;       /* as they are */
	float *unit, *grad; /* grad NULL: not wanted */
	double *length;
};

double units_dot(const float *a, const float *b, int64_t width);

static inline const float *units_of(const struct units *u, int64_t document)
{
	return u->unit + document * u->c->width;
}

/* Adds the gradients of `slope` times the product of two documents' vectors. */
void units_push_both(const struct units *u, int64_t a, int64_t b, double slope);

static inline enum contrast_similarity contrast_similarity(const struct contrast *c)
{
	return c->similarity ? c->similarity : contrast_facts(c->kind).usual;
}

/* MNRL; pairs of texts with a score, distances and margins. ERR_NOMEM. */
int contrast_rank(const struct units *u);
int contrast_pairs(const struct units *u);

#endif
