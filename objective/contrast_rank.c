/* Rankings: each anchor, or each positive, among the texts of all rows. */
#include "objective/contrast_units.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

#include <math.h>

enum { BAND = 64, CHUNK = 64, DIRECTIONS = 4 };

/* A text of each row is compared with texts `to` up to `end` of all rows. */
struct direction {
	int64_t from, to, end;
	int64_t first, count; /* its columns: text by text, those of all rows */
	int leaves_own_out;
};

struct ranking {
	const struct units *u;
	struct direction direction[DIRECTIONS]; /* the first is from anchors to all other texts */
	int direction_count, is_per_direction;
	int64_t columns;
	double *slope;        /* [CHUNK, columns] of the rows from `begin` on */
	int64_t begin, count; /* rows */
};

/* A part of the similarity that is added to a negative's score, and has no gradient. */
static double hardness_of(const struct contrast *c, int64_t row, int64_t column)
{
	int is_own = column % c->rows == row;
	int asked = is_own ? HARDNESS_HARD_NEGATIVES : HARDNESS_IN_BATCH_NEGATIVES;

	return column != row && (c->hardness & asked) ? c->hardness_strength : 0;
}

static void scores_find(double *s, const struct ranking *r, int64_t row)
{
	const struct contrast *c = r->u->c;

	for (int k = 0; k < r->direction_count; k++) {
		const struct direction *d = &r->direction[k];
		const float *from = units_of(r->u, row * c->each + d->from);

		for (int64_t i = d->first, t = d->to; t < d->end; t++)
			for (int64_t n = 0; n < c->rows; n++, i++) {
				double sim = units_dot(from, units_of(r->u, n * c->each + t), c->width);

				s[i] = c->scale * sim +
				       (k == 0 && c->hardness ? hardness_of(c, row, i) * sim : 0);
				if (d->leaves_own_out && n == row)
					s[i] = -INFINITY;
			}
	}
}

/* Scores to probabilities, times `share`. Returns the logarithm of the sum. */
static double softmax(double *s, int64_t count, double share)
{
	double top = -INFINITY, sum = 0;

	for (int64_t i = 0; i < count; i++)
		top = fmax(top, s[i]);
	for (int64_t i = 0; i < count; i++) {
		s[i] = exp(s[i] - top);
		sum += s[i];
	}
	for (int64_t i = 0; i < count; i++)
		s[i] *= share / sum;
	return log(sum) + top;
}

static void own_gradients(const struct ranking *r, const double *s, int64_t row)
{
	const struct contrast *c = r->u->c;

	for (int k = 0; k < r->direction_count; k++) {
		const struct direction *d = &r->direction[k];
		float *grad = r->u->grad + (row * c->each + d->from) * c->width;

		for (int64_t at = 0; at < c->width; at += BAND) {
			int64_t band = min_i64(BAND, c->width - at);
			double acc[BAND] = {0};

			for (int64_t i = d->first, t = d->to; t < d->end; t++)
				for (int64_t n = 0; n < c->rows; n++, i++) {
					const float *to = units_of(r->u, n * c->each + t) + at;

					for (int64_t b = 0; b < band; b++)
						acc[b] += s[i] * (double)to[b];
				}
			for (int64_t b = 0; b < band; b++)
				grad[at + b] += (float)acc[b];
		}
	}
}

static void row_rank(void *context, int64_t n, int worker)
{
	const struct ranking *r = context;
	const struct contrast *c = r->u->c;
	int64_t row = r->begin + n;
	double *s = r->slope + n * r->columns, own;

	(void)worker;
	scores_find(s, r, row);
	own = s[row];
	if (r->is_per_direction)
		for (int k = 0; k < r->direction_count; k++)
			c->loss[row] += softmax(s + r->direction[k].first, r->direction[k].count,
			                        1.0 / r->direction_count) /
			                r->direction_count;
	else
		c->loss[row] += softmax(s, r->columns, 1);
	c->loss[row] -= own;
	s[row] -= 1;
	for (int64_t i = 0; i < r->columns; i++)
		s[i] *= c->weight * c->scale;
	if (c->gradient)
		own_gradients(r, s, row);
}

/* The gradients of a document as one that others are compared with. */
static void document_rank(void *context, int64_t n, int worker)
{
	const struct ranking *r = context;
	const struct contrast *c = r->u->c;
	int64_t text = n % c->each, row = n / c->each;

	(void)worker;
	for (int k = 0; k < r->direction_count; k++) {
		const struct direction *d = &r->direction[k];
		int64_t column = d->first + (text - d->to) * c->rows + row;

		for (int64_t at = 0; at < c->width && text >= d->to && text < d->end; at += BAND) {
			int64_t band = min_i64(BAND, c->width - at);
			double acc[BAND] = {0};

			for (int64_t i = 0; i < r->count; i++) {
				const float *from = units_of(r->u, (r->begin + i) * c->each + d->from) + at;
				double slope = r->slope[i * r->columns + column];

				for (int64_t b = 0; b < band; b++)
					acc[b] += slope * (double)from[b];
			}
			for (int64_t b = 0; b < band; b++)
				r->u->grad[n * c->width + at + b] += (float)acc[b];
		}
	}
}

static void directions_set(struct ranking *r, int asked)
{
	const struct contrast *c = r->u->c;
	const struct direction all[DIRECTIONS] = {{.from = 0, .to = 1, .end = c->each},
	        {.from = 0, .to = 0, .end = 1, .leaves_own_out = 1}, {.from = 1, .to = 0, .end = 1},
	        {.from = 1, .to = 1, .end = c->each, .leaves_own_out = 1}};

	for (int k = 0; k < DIRECTIONS; k++) {
		struct direction *d = &r->direction[r->direction_count];

		if (!(asked >> k & 1))
			continue;
		*d = all[k];
		d->first = r->columns;
		d->count = c->rows * (d->end - d->to);
		r->columns += d->count;
		r->direction_count++;
	}
}

int contrast_rank(const struct units *u)
{
	const struct contrast *c = u->c;
	struct ranking r = {.u = u, .is_per_direction = c->is_per_direction};

	if (c->kind == CONTRAST_SYMMETRIC_MNRL) {
		directions_set(&r, DIRECTION_QUERY_TO_DOC | DIRECTION_DOC_TO_QUERY);
		r.is_per_direction = 1;
	} else {
		directions_set(&r, c->directions | DIRECTION_QUERY_TO_DOC);
	}
	r.slope = mem_alloc((size_t)(CHUNK * r.columns), sizeof(*r.slope));
	if (!r.slope)
		return ERR_NOMEM;
	for (; r.begin < c->rows; r.begin += CHUNK) {
		r.count = min_i64(CHUNK, c->rows - r.begin);
		c->each_task(c->pool, r.count, row_rank, &r);
		if (c->gradient)
			c->each_task(c->pool, c->rows * c->each, document_rank, &r);
	}
	mem_free(r.slope);
	return 0;
}
