/* Losses that compare vectors of documents, and their gradients. */
#include "objective/contrast.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

enum { LANES = 8, BAND = 64, CHUNK = 64 };
static const double least_length = 1e-12;

static double dot(const float *a, const float *b, int64_t width)
{
	double lane[LANES] = {0}, sum = 0;
	int64_t i = 0;

	for (; i + LANES <= width; i += LANES)
		for (int k = 0; k < LANES; k++)
			lane[k] += (double)a[i + k] * (double)b[i + k];
	for (; i < width; i++)
		sum += (double)a[i] * (double)b[i];
	for (int k = 0; k < LANES; k++)
		sum += lane[k];
	return sum;
}

/* ---- unit vectors ---- */

/* The vectors divided by their lengths, and the gradients of these. */
struct units {
	const struct contrast *c;
	float *unit, *grad; /* [documents, width]; grad NULL: not wanted */
	double *length;
};

static void units_free(struct units *u)
{
	mem_free(u->unit);
	mem_free(u->grad);
	mem_free(u->length);
}

static void unit_make(void *context, int64_t n, int worker)
{
	struct units *u = context;
	const struct contrast *c = u->c;
	const float *x = c->vectors + n * c->stride;

	(void)worker;
	u->length[n] = fmax(sqrt(dot(x, x, c->width)), least_length);
	for (int64_t i = 0; i < c->width; i++)
		u->unit[n * c->width + i] = (float)((double)x[i] / u->length[n]);
}

static int units_make(struct units *u, const struct contrast *c)
{
	int64_t count = c->rows * c->each;

	*u = (struct units){.c = c,
	        .unit = mem_alloc((size_t)(count * c->width), sizeof(float)),
	        .grad = c->gradient ? mem_alloc((size_t)(count * c->width), sizeof(float)) : NULL,
	        .length = mem_alloc((size_t)count, sizeof(double))};
	if (!u->unit || !u->length || (c->gradient && !u->grad)) {
		units_free(u);
		return ERR_NOMEM;
	}
	c->each_task(c->pool, count, unit_make, u);
	return 0;
}

/* From the gradient of the unit vector to that of the vector. A vector of length 0 has none. */
static void unit_backward(void *context, int64_t n, int worker)
{
	struct units *u = context;
	const struct contrast *c = u->c;
	const float *unit = u->unit + n * c->width, *grad = u->grad + n * c->width;
	double along = u->length[n] > least_length ? dot(unit, grad, c->width) : 0;

	(void)worker;
	for (int64_t i = 0; i < c->width; i++)
		c->gradient[n * c->stride + i] +=
		        (float)(((double)grad[i] - along * (double)unit[i]) / u->length[n]);
}

/* grad of document n += factor * unit vector of m. */
static void unit_push(struct units *u, int64_t n, int64_t m, double factor)
{
	int64_t width = u->c->width;

	for (int64_t i = 0; u->grad && i < width; i++)
		u->grad[n * width + i] += (float)(factor * (double)u->unit[m * width + i]);
}

/* ---- ranking among all rows ---- */

/* Cross-entropy of each row's `from`-th text over texts `to` up to `end` of all rows; its own `to`-th is
 * right. */
struct ranking {
	struct units *u;
	int64_t from, to, end;
	double share;  /* of the loss */
	double *slope; /* [CHUNK, candidates] of the rows from `first` on */
	int64_t first, count;
};

static int64_t candidate(const struct ranking *r, int64_t d)
{
	const struct contrast *c = r->u->c;

	return d % c->rows * c->each + r->to + d / c->rows;
}

static void ranking_row(void *context, int64_t n, int worker)
{
	const struct ranking *r = context;
	const struct contrast *c = r->u->c;
	int64_t row = r->first + n, from = row * c->each + r->from, most = c->rows * (r->end - r->to);
	const float *unit = r->u->unit;
	double *s = r->slope + n * most, top = -INFINITY, sum = 0, own;

	(void)worker;
	for (int64_t d = 0; d < most; d++) {
		s[d] = c->scale * dot(unit + from * c->width, unit + candidate(r, d) * c->width, c->width);
		top = fmax(top, s[d]);
	}
	own = s[row];
	for (int64_t d = 0; d < most; d++) {
		s[d] = exp(s[d] - top);
		sum += s[d];
	}
	c->loss[row] += r->share * (log(sum) + top - own);
	for (int64_t d = 0; d < most; d++)
		s[d] = r->share * c->weight * c->scale * (s[d] / sum - (d == row));
	for (int64_t at = 0; c->gradient && at < c->width; at += BAND) {
		int64_t band = min_i64(BAND, c->width - at);
		double acc[BAND] = {0};

		for (int64_t d = 0; d < most; d++)
			for (int64_t i = 0; i < band; i++)
				acc[i] += s[d] * (double)unit[candidate(r, d) * c->width + at + i];
		for (int64_t i = 0; i < band; i++)
			r->u->grad[from * c->width + at + i] += (float)acc[i];
	}
}

static void ranking_candidate(void *context, int64_t d, int worker)
{
	const struct ranking *r = context;
	const struct contrast *c = r->u->c;
	int64_t to = candidate(r, d), most = c->rows * (r->end - r->to);

	(void)worker;
	for (int64_t at = 0; at < c->width; at += BAND) {
		int64_t band = min_i64(BAND, c->width - at);
		double acc[BAND] = {0};

		for (int64_t n = 0; n < r->count; n++) {
			const float *from = r->u->unit + ((r->first + n) * c->each + r->from) * c->width + at;

			for (int64_t i = 0; i < band; i++)
				acc[i] += r->slope[n * most + d] * (double)from[i];
		}
		for (int64_t i = 0; i < band; i++)
			r->u->grad[to * c->width + at + i] += (float)acc[i];
	}
}

static int rank(struct units *u, int64_t from, int64_t to, int64_t end, double share)
{
	const struct contrast *c = u->c;
	int64_t most = c->rows * (end - to);
	struct ranking r = {.u = u, .from = from, .to = to, .end = end, .share = share};

	r.slope = mem_alloc((size_t)(CHUNK * most), sizeof(*r.slope));
	if (!r.slope)
		return ERR_NOMEM;
	for (; r.first < c->rows; r.first += CHUNK) {
		r.count = min_i64(CHUNK, c->rows - r.first);
		c->each_task(c->pool, r.count, ranking_row, &r);
		if (c->gradient)
			c->each_task(c->pool, most, ranking_candidate, &r);
	}
	mem_free(r.slope);
	return 0;
}

/* ---- pairs with a score ---- */

/* The slopes of each row's cosine: their chain to both unit vectors. */
static void cosines_push(struct units *u, const double *slope)
{
	const struct contrast *c = u->c;

	for (int64_t i = 0; u->grad && i < c->rows; i++) {
		unit_push(u, i * c->each, i * c->each + 1, c->weight * slope[i]);
		unit_push(u, i * c->each + 1, i * c->each, c->weight * slope[i]);
	}
}

/* Each row's loss is the whole one, so that their mean is it. Two passes over pairs of rows: none is kept. */
static void cosent(const struct contrast *c, const double *cosine, double *slope)
{
	double top = 0, sum, loss;

	for (int64_t i = 0; i < c->rows; i++)
		for (int64_t j = 0; j < c->rows; j++)
			if (c->score[i] < c->score[j])
				top = fmax(top, c->scale * (cosine[i] - cosine[j]));
	sum = exp(-top);
	for (int64_t i = 0; i < c->rows; i++)
		for (int64_t j = 0; j < c->rows; j++)
			if (c->score[i] < c->score[j]) {
				double e = exp(c->scale * (cosine[i] - cosine[j]) - top);

				sum += e;
				slope[i] += e;
				slope[j] -= e;
			}
	loss = log(sum) + top;
	for (int64_t i = 0; i < c->rows; i++) {
		c->loss[i] += loss;
		slope[i] *= c->scale * (double)c->rows / sum;
	}
}

static double margin_of(const struct contrast *c)
{
#define CONTRAST_MARGIN(id, name, others, score, margin, ...) [CONTRAST_##id] = margin,
	static const double own[] = {0, CONTRAST_LOSSES(CONTRAST_MARGIN)};
#undef CONTRAST_MARGIN
	return c->margin > 0 ? c->margin : own[c->kind];
}

static void by_row(const struct contrast *c, const double *cosine, double *slope)
{
	for (int64_t i = 0; i < c->rows; i++) {
		double score = (double)c->score[i], far = 1 - cosine[i], near = fmax(0, margin_of(c) - far);

		if (c->kind == CONTRAST_COSINE) {
			c->loss[i] += (cosine[i] - score) * (cosine[i] - score);
			slope[i] = 2 * (cosine[i] - score);
		} else {
			c->loss[i] += 0.5 * (score * far * far + (1 - score) * near * near);
			slope[i] = -score * far + (1 - score) * near;
		}
	}
}

static int scored(struct units *u)
{
	const struct contrast *c = u->c;
	double *cosine = mem_alloc((size_t)c->rows * 2, sizeof(*cosine)),
	       *slope = cosine ? cosine + c->rows : NULL;

	if (!cosine)
		return ERR_NOMEM;
	for (int64_t i = 0; i < c->rows; i++)
		cosine[i] = dot(
		        u->unit + i * c->each * c->width, u->unit + (i * c->each + 1) * c->width, c->width);
	if (c->kind == CONTRAST_COSENT)
		cosent(c, cosine, slope);
	else
		by_row(c, cosine, slope);
	cosines_push(u, slope);
	mem_free(cosine);
	return 0;
}

/* ---- distances ---- */

static double distance(const float *a, const float *b, int64_t width)
{
	double sum = 0;

	for (int64_t i = 0; i < width; i++)
		sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
	return sqrt(sum);
}

/* Of vectors as they are, not of their unit vectors. */
static void triplet_row(void *context, int64_t n, int worker)
{
	const struct contrast *c = context;
	const float *x[3];
	double to[2], loss;

	(void)worker;
	for (int k = 0; k < 3; k++)
		x[k] = c->vectors + (n * c->each + k) * c->stride;
	for (int k = 0; k < 2; k++)
		to[k] = distance(x[0], x[k + 1], c->width);
	loss = to[0] - to[1] + margin_of(c);
	if (loss <= 0) /* NaN passes on */
		return;
	c->loss[n] += loss;
	for (int k = 0; k < 2 && c->gradient; k++)
		for (int64_t i = 0; i < c->width && to[k] != 0; i++) {
			double slope =
			        c->weight * (k ? -1 : 1) * ((double)x[0][i] - (double)x[k + 1][i]) / to[k];

			c->gradient[n * c->each * c->stride + i] += (float)slope;
			c->gradient[(n * c->each + k + 1) * c->stride + i] -= (float)slope;
		}
}

int contrast_losses(const struct contrast *c)
{
	struct units u;
	int rc;

	if (c->kind == CONTRAST_TRIPLET) {
		c->each_task(c->pool, c->rows, triplet_row, (void *)(uintptr_t)c);
		return 0;
	}
	rc = units_make(&u, c);
	if (rc)
		return rc;
	if (contrast_has_score(c->kind)) {
		rc = scored(&u);
	} else {
		double share = c->kind == CONTRAST_SYMMETRIC_MNRL ? 0.5 : 1;

		rc = rank(&u, 0, 1, c->each, share);
		if (!rc && c->kind == CONTRAST_SYMMETRIC_MNRL)
			rc = rank(&u, 1, 0, 1, share);
	}
	if (!rc && c->gradient)
		c->each_task(c->pool, c->rows * c->each, unit_backward, &u);
	units_free(&u);
	return rc;
}
