/* The gated delta rule and Mamba-2's scan in double, token by token as their definitions say, and their
 * gradients. */
#ifndef FERRY_TESTS_DELTA_REFERENCE_H
#define FERRY_TESTS_DELTA_REFERENCE_H

#include "base/mem.h"
#include "tests/check.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* One value head over all tokens. q, k: [tokens][dk], v, o: [tokens][dv]; d: the gradient of each. */
struct delta_reference {
	int64_t tokens, dk, dv;
	double scale, epsilon, decay, dt_bias, ddecay, ddt_bias;
	int is_scan;
	double low, high, skip, dskip;
	const int32_t *doc_start;
	double *q, *k, *v, *a, *b, *o, *dq, *dk_, *dv_, *da, *db, *dout;
	double dq_size, dk_size; /* the largest terms of dq and dk, which may cancel */
	double *states;          /* [tokens][2][dk][dv]: the decayed one, and the one after the token */
	double *beta;            /* as rounded, or the step of a scan; [tokens] */
	double (*round)(double); /* to the dtype; NULL: as it is */
};

static inline double *delta_numbers(int64_t count)
{
	double *numbers = mem_alloc((size_t)count, sizeof(double));

	assert_non_null(numbers);
	return numbers;
}

static inline void delta_reference_alloc(struct delta_reference *r)
{
	int64_t keys = r->tokens * r->dk, values = r->tokens * r->dv;

	r->q = delta_numbers(keys);
	r->k = delta_numbers(keys);
	r->dq = delta_numbers(keys);
	r->dk_ = delta_numbers(keys);
	r->v = delta_numbers(values);
	r->o = delta_numbers(values);
	r->dv_ = delta_numbers(values);
	r->dout = delta_numbers(values);
	r->a = delta_numbers(r->tokens);
	r->b = delta_numbers(r->tokens);
	r->da = delta_numbers(r->tokens);
	r->db = delta_numbers(r->tokens);
	r->beta = delta_numbers(r->tokens);
	r->states = delta_numbers(2 * r->tokens * r->dk * r->dv);
}

static inline void delta_reference_free(struct delta_reference *r)
{
	double *all[] = {r->q, r->k, r->v, r->a, r->b, r->o, r->dq, r->dk_, r->dv_, r->da, r->db, r->dout,
	        r->states, r->beta};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		mem_free(all[i]);
}

static inline double delta_length(const struct delta_reference *r, const double *x)
{
	double sum = r->epsilon;

	if (r->is_scan)
		return 1;
	for (int64_t d = 0; d < r->dk; d++)
		sum += x[d] * x[d];
	return 1 / sqrt(sum);
}

static inline double delta_round(const struct delta_reference *r, double x)
{
	return r->round ? r->round(x) : x;
}

/* What the step's softplus sees. */
static inline double delta_gate_in(const struct delta_reference *r, int64_t t)
{
	double x = r->a[t] + r->dt_bias;

	return r->is_scan ? delta_round(r, x) : x;
}

static inline double delta_softplus(const struct delta_reference *r, int64_t t)
{
	double x = delta_gate_in(r, t), y = x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));

	return r->is_scan ? delta_round(r, y) : y;
}

/* 1: the step lies between its limits, or has none. */
static inline int delta_is_free(const struct delta_reference *r, int64_t t)
{
	double step = delta_softplus(r, t);

	return !r->is_scan || (step >= delta_round(r, r->low) && step <= delta_round(r, r->high));
}

static inline double delta_step(const struct delta_reference *r, int64_t t)
{
	double step = delta_softplus(r, t);

	return r->is_scan ? fmin(fmax(step, delta_round(r, r->low)), delta_round(r, r->high)) : step;
}

static inline double delta_speed(const struct delta_reference *r, int64_t t)
{
	return -exp(r->decay) * delta_step(r, t);
}

static inline void delta_reference_forward(struct delta_reference *r)
{
	int64_t size = r->dk * r->dv;

	for (int64_t t = 0; t < r->tokens; t++) {
		double *before = r->states + 2 * t * size, *after = before + size,
		       keep = exp(delta_speed(r, t));
		const double *last = t > r->doc_start[t] ? before - size : NULL;
		double ql = delta_length(r, r->q + t * r->dk), kl = delta_length(r, r->k + t * r->dk);
		double s = 1 / (1 + exp(-r->b[t]));

		r->beta[t] = r->is_scan ? delta_step(r, t) : delta_round(r, s);
		for (int64_t i = 0; i < size; i++)
			before[i] = last ? keep * last[i] : 0;
		for (int64_t j = 0; j < r->dv; j++) {
			double rest = r->v[t * r->dv + j], out = r->skip * rest;

			for (int64_t i = 0; i < r->dk && !r->is_scan; i++)
				rest -= kl * r->k[t * r->dk + i] * before[i * r->dv + j];
			for (int64_t i = 0; i < r->dk; i++) {
				after[i * r->dv + j] =
				        before[i * r->dv + j] + kl * r->k[t * r->dk + i] * r->beta[t] * rest;
				out += r->scale * ql * r->q[t * r->dk + i] * after[i * r->dv + j];
			}
			r->o[t * r->dv + j] = out;
		}
	}
}

/* Back through x / sqrt(sum of squares + epsilon). */
static inline void delta_length_back(
        const struct delta_reference *r, double *dx, const double *x, double *size)
{
	double length = delta_length(r, x), along = 0;

	for (int64_t d = 0; d < r->dk; d++) {
		along += dx[d] * x[d] * length;
		*size = fmax(*size, fabs(dx[d] * length));
	}
	for (int64_t d = 0; d < r->dk && !r->is_scan; d++)
		dx[d] = (dx[d] - along * x[d] * length) * length;
}

/* After delta_reference_forward; writes all gradients. */
static inline void delta_reference_backward(struct delta_reference *r)
{
	int64_t size = r->dk * r->dv;
	double *ds = delta_numbers(size);

	r->ddecay = r->ddt_bias = r->dskip = r->dq_size = r->dk_size = 0;
	for (int64_t t = r->tokens - 1; t >= 0; t--) {
		const double *before = r->states + 2 * t * size, *after = before + size;
		double *q = r->q + t * r->dk, *k = r->k + t * r->dk, *dq = r->dq + t * r->dk,
		       *dk = r->dk_ + t * r->dk;
		double ql = delta_length(r, q), kl = delta_length(r, k), dbeta = 0, dg = 0;
		double g = delta_speed(r, t), s = 1 / (1 + exp(-r->b[t]));
		double slope = delta_is_free(r, t) / (1 + exp(-delta_gate_in(r, t)));

		if (t + 1 == r->tokens || r->doc_start[t + 1] == t + 1)
			memset(ds, 0, (size_t)size * sizeof(*ds));
		memset(dq, 0, (size_t)r->dk * sizeof(*dq));
		memset(dk, 0, (size_t)r->dk * sizeof(*dk));
		for (int64_t j = 0; j < r->dv; j++) {
			double rest = r->v[t * r->dv + j], dvalue = 0, drest, dout = r->dout[t * r->dv + j];

			for (int64_t i = 0; i < r->dk && !r->is_scan; i++)
				rest -= kl * k[i] * before[i * r->dv + j];
			r->dskip += dout * r->v[t * r->dv + j];
			for (int64_t i = 0; i < r->dk; i++) {
				dq[i] += r->scale * after[i * r->dv + j] * dout;
				ds[i * r->dv + j] += r->scale * ql * q[i] * dout;
				dvalue += ds[i * r->dv + j] * kl * k[i];
				dk[i] += ds[i * r->dv + j] * r->beta[t] * rest;
			}
			dbeta += dvalue * rest;
			drest = r->beta[t] * dvalue;
			r->dv_[t * r->dv + j] = drest + r->skip * dout;
			for (int64_t i = 0; i < r->dk && !r->is_scan; i++) {
				ds[i * r->dv + j] -= kl * k[i] * drest;
				dk[i] -= before[i * r->dv + j] * drest;
			}
		}
		for (int64_t i = 0; i < size; i++) {
			dg += ds[i] * before[i];
			ds[i] *= exp(g);
		}
		delta_length_back(r, dq, q, &r->dq_size);
		delta_length_back(r, dk, k, &r->dk_size);
		r->db[t] = r->is_scan ? 0 : dbeta * s * (1 - s);
		r->da[t] = dg * -exp(r->decay) * slope + (r->is_scan ? dbeta * slope : 0);
		r->ddecay += dg * g;
		r->ddt_bias += r->da[t];
	}
	mem_free(ds);
}

#endif
