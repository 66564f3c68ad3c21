/* Losses that compare vectors of documents: the vectors that they compare, and the way back. */
#include "objective/contrast.h"

#include "base/err.h"
#include "base/mem.h"
#include "objective/contrast_units.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };
static const double least_length = 1e-12;

double units_dot(const float *a, const float *b, int64_t width)
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

void units_push_both(const struct units *u, int64_t a, int64_t b, double slope)
{
	const float *x = units_of(u, a), *y = units_of(u, b);
	int64_t width = u->c->width;

	for (int64_t i = 0; u->grad && i < width; i++) {
		u->grad[a * width + i] += (float)(slope * (double)y[i]);
		u->grad[b * width + i] += (float)(slope * (double)x[i]);
	}
}

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
	u->length[n] = u->is_plain ? 1 : fmax(sqrt(units_dot(x, x, c->width)), least_length);
	for (int64_t i = 0; i < c->width; i++)
		u->unit[n * c->width + i] = (float)((double)x[i] / u->length[n]);
}

static int units_make(struct units *u, const struct contrast *c, int is_plain)
{
	int64_t count = c->rows * c->each;

	*u = (struct units){.c = c,
	        .is_plain = is_plain,
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
	double along = !u->is_plain && u->length[n] > least_length ? units_dot(unit, grad, c->width) : 0;

	(void)worker;
	for (int64_t i = 0; i < c->width; i++)
		c->gradient[n * c->stride + i] +=
		        (float)(((double)grad[i] - along * (double)unit[i]) / u->length[n]);
}

static int is_ranking(enum contrast_kind kind)
{
	return kind == CONTRAST_MNRL || kind == CONTRAST_SYMMETRIC_MNRL;
}

/* The loss of the vectors' first c->width components. */
static int losses_find(const struct contrast *c)
{
	struct units u;
	int rc = units_make(&u, c, contrast_similarity(c) != SIMILARITY_COSINE && !c->dim_count);

	if (rc)
		return rc;
	rc = is_ranking(c->kind) ? contrast_rank(&u) : contrast_pairs(&u);
	if (!rc && c->gradient)
		c->each_task(c->pool, c->rows * c->each, unit_backward, &u);
	units_free(&u);
	return rc;
}

int contrast_losses(const struct contrast *c)
{
	double *loss = c->dim_count ? mem_alloc((size_t)c->rows, sizeof(*loss)) : NULL;
	int rc = 0;

	if (!c->dim_count)
		return losses_find(c);
	if (!loss)
		return ERR_NOMEM;
	for (int d = 0; d < c->dim_count && !rc; d++) {
		struct contrast part = *c;

		part.width = c->dim[d];
		part.weight *= c->dim_weight[d];
		part.loss = loss;
		memset(loss, 0, (size_t)c->rows * sizeof(*loss));
		rc = losses_find(&part);
		for (int64_t i = 0; i < c->rows; i++)
			c->loss[i] += c->dim_weight[d] * loss[i];
	}
	mem_free(loss);
	return rc;
}
