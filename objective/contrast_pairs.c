/* Losses of pairs of texts in a row: scores, distances, margins. */
#include "objective/contrast_units.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Pairs of documents: their similarity or distance, and the loss's slope by it. */
struct pairs {
	const struct units *u;
	int64_t count;
	int64_t *a, *b;               /* documents */
	double *value, *slope, *sign; /* sign: of a value that is an absolute one */
	float *score;                 /* the label of each */
};

/* ---- similarities and distances ---- */

static double sign_of(double x)
{
	return x > 0 ? 1 : x < 0 ? -1 : 0;
}

/* torch's pairwise_distance adds 1e-6 to each difference; the triplet loss does not. */
static double epsilon_of(const struct contrast *c)
{
	return c->kind == CONTRAST_TRIPLET ? 0 : 1e-6;
}

static double distance(const struct units *u, int64_t a, int64_t b)
{
	const float *x = units_of(u, a), *y = units_of(u, b);
	double sum = 0, epsilon = epsilon_of(u->c);

	if (contrast_similarity(u->c) == SIMILARITY_COSINE)
		return 1 - units_dot(x, y, u->c->width);
	for (int64_t i = 0; i < u->c->width; i++) {
		double d = (double)x[i] - (double)y[i] + epsilon;

		sum += contrast_similarity(u->c) == SIMILARITY_MANHATTAN ? fabs(d) : d * d;
	}
	return contrast_similarity(u->c) == SIMILARITY_MANHATTAN ? sum : sqrt(sum);
}

/* Adds the gradients of `slope` times a distance, whose value is `far`. */
static void distance_push(const struct units *u, int64_t a, int64_t b, double far, double slope)
{
	const float *x = units_of(u, a), *y = units_of(u, b);
	int64_t width = u->c->width;
	double epsilon = epsilon_of(u->c);

	if (!u->grad)
		return;
	if (contrast_similarity(u->c) == SIMILARITY_COSINE) {
		units_push_both(u, a, b, -slope);
		return;
	}
	for (int64_t i = 0; i < width && far != 0; i++) {
		double d = (double)x[i] - (double)y[i] + epsilon;
		double by =
		        slope * (contrast_similarity(u->c) == SIMILARITY_MANHATTAN ? sign_of(d) : d / far);

		u->grad[a * width + i] += (float)by;
		u->grad[b * width + i] -= (float)by;
	}
}

/* Components of the first half are real parts, those of the second imaginary ones; a missing last one is
 * 0. */
static double sine(const struct units *u, int64_t a, int64_t b)
{
	const float *x = units_of(u, a), *y = units_of(u, b);
	int64_t width = u->c->width, half = (width + 1) / 2;
	double sum = 0;

	for (int64_t i = 0; i + half < width; i++)
		sum += (double)x[i + half] * (double)y[i] - (double)x[i] * (double)y[i + half];
	return sum;
}

static void sine_push(const struct units *u, int64_t a, int64_t b, double slope)
{
	const float *x = units_of(u, a), *y = units_of(u, b);
	int64_t width = u->c->width, half = (width + 1) / 2;

	for (int64_t i = 0; u->grad && i + half < width; i++) {
		u->grad[a * width + i + half] += (float)(slope * (double)y[i]);
		u->grad[b * width + i] += (float)(slope * (double)x[i + half]);
		u->grad[a * width + i] -= (float)(slope * (double)y[i + half]);
		u->grad[b * width + i + half] -= (float)(slope * (double)x[i]);
	}
}

/* ---- pairs with a score ---- */

/* log(exp(a) + exp(b)) */
static double log_add(double a, double b)
{
	double top = fmax(a, b);

	if (isnan(a) || isnan(b))
		return NAN;
	return top == -INFINITY ? top : top + log1p(exp(fmin(a, b) - top));
}

struct ranked {
	float score;
	int64_t pair;
};

static int by_score(const void *one, const void *other)
{
	const struct ranked *a = one, *b = other;

	if (a->score != b->score)
		return a->score < b->score ? -1 : 1;
	return a->pair < b->pair ? -1 : a->pair > b->pair;
}

/* log of the sum of exp(sign * scale * value) over all pairs with a lower score, or, backwards, a higher one:
 * pairs of one score get what those before them add up to. */
static void log_sums(double *to, const struct pairs *p, const struct ranked *order, int is_backwards)
{
	double sum = -INFINITY, scale = is_backwards ? -p->u->c->scale : p->u->c->scale;
	int64_t last = is_backwards ? p->count - 1 : 0, step = is_backwards ? -1 : 1;

	for (int64_t at = 0, end; at < p->count; at = end) {
		const struct ranked *r = order + last + step * at;

		for (end = at + 1; end < p->count && r[step * (end - at)].score == r->score;)
			end++;
		for (int64_t i = 0; i < end - at; i++)
			to[r[step * i].pair] = sum;
		for (int64_t i = 0; i < end - at; i++)
			sum = log_add(sum, scale * p->value[r[step * i].pair]);
	}
}

/* Each row's loss is the whole one, so that their mean is it. A pair's terms with all of a higher score have
 * one sum, and so have those with all of a lower score. */
static int cosent(struct pairs *p)
{
	const struct contrast *c = p->u->c;
	struct ranked *order = mem_alloc((size_t)p->count, sizeof(*order));
	double *higher = mem_alloc(2 * (size_t)p->count, sizeof(*higher)), *lower = higher + p->count,
	       loss = 0;

	for (int64_t i = 0; order && higher && i < p->count; i++)
		order[i] = (struct ranked){p->score[i], i};
	if (order && higher) {
		qsort(order, (size_t)p->count, sizeof(*order), by_score);
		log_sums(lower, p, order, 0);
		log_sums(higher, p, order, 1);
		for (int64_t i = 0; i < p->count; i++)
			loss = log_add(loss, c->scale * p->value[i] + higher[i]);
		for (int64_t i = 0; i < c->rows; i++)
			c->loss[i] += loss;
		for (int64_t i = 0; i < p->count; i++)
			p->slope[i] = c->scale * (double)c->rows *
			              (exp(c->scale * p->value[i] + higher[i] - loss) -
			                      exp(lower[i] - c->scale * p->value[i] - loss));
	}
	mem_free(order);
	mem_free(higher);
	return order && higher ? 0 : ERR_NOMEM;
}

static int cosent_find(struct pairs *p)
{
	const struct units *u = p->u;
	const struct contrast *c = u->c;
	int has_sine = c->kind == CONTRAST_ANGLE, rc;

	for (int64_t i = 0; i < p->count; i++) {
		double sim = units_dot(units_of(u, p->a[i]), units_of(u, p->b[i]), c->width);

		sim += has_sine ? sine(u, p->a[i], p->b[i]) : 0;
		p->sign[i] = has_sine && sim < 0 ? -1 : 1;
		p->value[i] = p->sign[i] * sim;
	}
	rc = cosent(p);
	for (int64_t i = 0; i < p->count && !rc; i++) {
		double by = c->weight * p->sign[i] * p->slope[i];

		units_push_both(u, p->a[i], p->b[i], by);
		if (has_sine)
			sine_push(u, p->a[i], p->b[i], by);
	}
	return rc;
}

/* ---- pairs by a distance ---- */

static double margin_of(const struct contrast *c)
{
	return c->margin > 0 ? c->margin : contrast_facts(c->kind).margin;
}

/* Half of d^2 by the label, and of what d lacks to the margin by 1 minus the label. */
static void contrastive(struct pairs *p, int64_t i)
{
	double score = (double)p->score[i], far = p->value[i], near = fmax(0, margin_of(p->u->c) - far);

	p->u->c->loss[i] += 0.5 * (score * far * far + (1 - score) * near * near);
	p->slope[i] = score * far - (1 - score) * near;
}

/* Where the pairs of the other label end: the largest distance of label 1, the least of label 0; the mean
 * of the own ones if there is none. */
static double border(const struct pairs *p, float label)
{
	double edge = label != 0 ? INFINITY : -INFINITY, sum = 0;
	int64_t others = 0, own = 0;

	for (int64_t i = 0; i < p->count; i++) {
		if (p->score[i] == label) {
			own++;
			sum += p->value[i];
		} else if (p->score[i] == 1 - label) {
			others++;
			edge = label != 0 ? fmin(edge, p->value[i]) : fmax(edge, p->value[i]);
		}
	}
	return others ? edge : sum / (double)own;
}

/* A sum over rows, which is their mean times their number. */
static void online_contrastive(struct pairs *p)
{
	const struct contrast *c = p->u->c;
	double edge[2] = {border(p, 0), border(p, 1)}, rows = (double)c->rows;

	for (int64_t i = 0; i < p->count; i++) {
		double far = p->value[i], near = fmax(0, margin_of(c) - far);

		if (isnan(far)) {
			c->loss[i] += far;
			p->slope[i] = far;
		} else if (p->score[i] == 1 && far > edge[1]) {
			c->loss[i] += rows * far * far;
			p->slope[i] = rows * 2 * far;
		} else if (p->score[i] == 0 && far < edge[0]) {
			c->loss[i] += rows * near * near;
			p->slope[i] = -rows * 2 * near;
		}
	}
}

static void distances_find(struct pairs *p)
{
	const struct contrast *c = p->u->c;

	for (int64_t i = 0; i < p->count; i++)
		p->value[i] = distance(p->u, p->a[i], p->b[i]);
	if (c->kind == CONTRAST_ONLINE_CONTRASTIVE)
		online_contrastive(p);
	for (int64_t i = 0; i < p->count; i++) {
		double wrong = 1 - p->value[i] - (double)p->score[i];

		if (c->kind == CONTRAST_CONTRASTIVE)
			contrastive(p, i);
		if (c->kind == CONTRAST_COSINE) {
			c->loss[i] += wrong * wrong;
			p->slope[i] = -2 * wrong;
		}
		distance_push(p->u, p->a[i], p->b[i], p->value[i], c->weight * p->slope[i]);
	}
}

/* ---- all pairs of the rows ---- */

static void pairs_free(struct pairs *p)
{
	mem_free(p->a);
	mem_free(p->value);
	mem_free(p->score);
}

/* The anchor with each text behind it, for AnglE; else with the first of them. */
static int pairs_make(struct pairs *p, const struct units *u)
{
	const struct contrast *c = u->c;
	int64_t sets = c->kind == CONTRAST_ANGLE ? c->each - 1 : 1;
	size_t count = (size_t)(sets * c->rows);

	*p = (struct pairs){.u = u, .count = sets * c->rows};
	p->a = mem_alloc(2 * count, sizeof(*p->a));
	p->value = mem_alloc(3 * count, sizeof(*p->value));
	p->score = mem_alloc(count, sizeof(*p->score));
	if (!p->a || !p->value || !p->score) {
		pairs_free(p);
		return ERR_NOMEM;
	}
	p->b = p->a + count;
	p->slope = p->value + count;
	p->sign = p->slope + count;
	for (int64_t i = 0; i < p->count; i++) {
		int64_t row = i % c->rows, set = i / c->rows;

		p->a[i] = row * c->each;
		p->b[i] = row * c->each + 1 + set;
		p->score[i] = set ? 1 - c->score[row * c->each] : c->score[row * c->each];
	}
	return 0;
}

static int scored(const struct units *u)
{
	struct pairs p;
	int rc = pairs_make(&p, u);

	if (rc)
		return rc;
	if (u->c->kind == CONTRAST_COSENT || u->c->kind == CONTRAST_ANGLE)
		rc = cosent_find(&p);
	else
		distances_find(&p);
	pairs_free(&p);
	return rc;
}

/* ---- an anchor, a positive and negatives ---- */

static void triplet_row(void *context, int64_t n, int worker)
{
	const struct units *u = context;
	const struct contrast *c = u->c;
	int64_t a = n * c->each;
	double to[2] = {distance(u, a, a + 1), distance(u, a, a + 2)}, loss = to[0] - to[1] + margin_of(c);

	(void)worker;
	if (loss <= 0) /* NaN passes on */
		return;
	c->loss[n] += loss;
	distance_push(u, a, a + 1, to[0], c->weight);
	distance_push(u, a, a + 2, to[1], -c->weight);
}

static void margins_row(void *context, int64_t n, int worker)
{
	const struct units *u = context;
	const struct contrast *c = u->c;
	int64_t a = n * c->each, negatives = c->each - 2;
	double own = units_dot(units_of(u, a), units_of(u, a + 1), c->width);

	(void)worker;
	for (int64_t b = a + 2; b < a + c->each; b++) {
		double wrong = own - units_dot(units_of(u, a), units_of(u, b), c->width) -
		               (double)c->score[b],
		       slope = 2 * c->weight * wrong / (double)negatives;

		c->loss[n] += wrong * wrong / (double)negatives;
		units_push_both(u, a, a + 1, slope);
		units_push_both(u, a, b, -slope);
	}
}

/* ---- texts with a teacher's vector ---- */

static void teacher_row(void *context, int64_t n, int worker)
{
	const struct units *u = context;
	const struct contrast *c = u->c;
	double share = 1 / (double)(c->each * c->width);

	(void)worker;
	for (int64_t b = n * c->each; b < (n + 1) * c->each; b++) {
		const float *x = units_of(u, b), *wanted = c->teacher[b];
		double sum = 0;

		for (int64_t i = 0; wanted && i < c->width; i++) {
			double wrong = (double)x[i] - (double)wanted[i];

			sum += wrong * wrong;
			if (u->grad)
				u->grad[b * c->width + i] += (float)(2 * c->weight * share * wrong);
		}
		c->loss[n] += share * sum;
	}
}

int contrast_pairs(const struct units *u)
{
	const struct contrast *c = u->c;

	if (c->kind == CONTRAST_TRIPLET)
		c->each_task(c->pool, c->rows, triplet_row, (void *)(uintptr_t)u);
	else if (c->kind == CONTRAST_MARGIN_MSE)
		c->each_task(c->pool, c->rows, margins_row, (void *)(uintptr_t)u);
	else if (c->kind == CONTRAST_MSE)
		c->each_task(c->pool, c->rows, teacher_row, (void *)(uintptr_t)u);
	else
		return scored(u);
	return 0;
}
