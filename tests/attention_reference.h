/* The reference for attention, in double: computes every score, forward and backward. Its tensors have the
 * layout of the op. */
#ifndef FERRY_TESTS_ATTENTION_REFERENCE_H
#define FERRY_TESTS_ATTENTION_REFERENCE_H

#include "device/op_attention.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

struct attention {
	int64_t tokens, heads, kv_heads, head_dim, window;
	int64_t documents, document_tokens; /* documents; tokens of the longest */
	int64_t qkv_stride, q_head_stride, kv_head_stride, out_stride;
	double scale, score_cap; /* 0: none */
	enum attention_mask mask;
	const int32_t *doc_start, *doc_end;
	double *sink, *dsink; /* [heads], or NULL = none */
	double *bias, *dbias; /* [heads, 2 tokens], or NULL = none */
	double *q, *k, *v, *out, *lse, *dout, *dq, *dk, *dv;
	double *p, *ds; /* [heads, tokens, tokens] */
};

static inline int64_t q_at(const struct attention *a, int64_t t, int64_t h, int64_t d)
{
	return t * a->qkv_stride + h * a->q_head_stride + d;
}

static inline int64_t kv_at(const struct attention *a, int64_t t, int64_t h, int64_t d)
{
	return t * a->qkv_stride + h / (a->heads / a->kv_heads) * a->kv_head_stride + d;
}

static inline int64_t out_at(const struct attention *a, int64_t t, int64_t h, int64_t d)
{
	return t * a->out_stride + h * a->head_dim + d;
}

static inline int sees(const struct attention *a, int64_t i, int64_t j)
{
	int64_t distance = j < i ? i - j : j - i;

	if (j < a->doc_start[i] || j >= a->doc_end[i] || (a->mask == MASK_CAUSAL && j > i))
		return 0;
	return a->window == 0 || distance < a->window;
}

/* The score of query i and key j. */
static inline double score_of(const struct attention *a, int64_t h, int64_t i, int64_t j)
{
	double s = 0;

	for (int64_t d = 0; d < a->head_dim; d++)
		s += a->q[q_at(a, i, h, d)] * a->k[kv_at(a, j, h, d)];
	s *= a->scale;
	if (a->bias)
		s += a->bias[(2 * h + 1) * a->tokens + j - i];
	return a->score_cap > 0 ? a->score_cap * tanh(s / a->score_cap) : s;
}

static inline void reference_forward(struct attention *a)
{
	for (int64_t h = 0; h < a->heads; h++)
		for (int64_t i = 0; i < a->tokens; i++) {
			double *p = a->p + (h * a->tokens + i) * a->tokens,
			       max = a->sink ? a->sink[h] : -INFINITY, sum = 0;

			for (int64_t j = 0; j < a->tokens; j++) {
				p[j] = sees(a, i, j) ? score_of(a, h, i, j) : -INFINITY;
				max = p[j] > max ? p[j] : max;
			}
			if (a->sink)
				sum = exp(a->sink[h] - max);
			for (int64_t j = 0; j < a->tokens; j++)
				sum += p[j] = exp(p[j] - max);
			a->lse[i * a->heads + h] = max + log(sum);
			for (int64_t j = 0; j < a->tokens; j++)
				p[j] /= sum;
			for (int64_t d = 0; d < a->head_dim; d++) {
				double o = 0;

				for (int64_t j = 0; j < a->tokens; j++)
					if (p[j] > 0)
						o += p[j] * a->v[kv_at(a, j, h, d)];
				a->out[out_at(a, i, h, d)] = o;
			}
		}
}

/* dq, dk, dv, dsink, dbias must be zero; needs p and lse of reference_forward. */
static inline void reference_backward(struct attention *a)
{
	for (int64_t h = 0; h < a->heads; h++)
		for (int64_t i = 0; i < a->tokens; i++) {
			const double *p = a->p + (h * a->tokens + i) * a->tokens;
			double *ds = a->ds + (h * a->tokens + i) * a->tokens, mean = 0;

			for (int64_t j = 0; j < a->tokens; j++) {
				ds[j] = 0;
				for (int64_t d = 0; d < a->head_dim; d++)
					ds[j] += a->dout[out_at(a, i, h, d)] * a->v[kv_at(a, j, h, d)];
				mean += p[j] * ds[j];
			}
			if (a->sink)
				a->dsink[h] -= exp(a->sink[h] - a->lse[i * a->heads + h]) * mean;
			for (int64_t j = 0; j < a->tokens; j++) {
				if (!sees(a, i, j))
					continue;
				ds[j] = p[j] * (ds[j] - mean) * a->scale;
				if (a->bias)
					a->dbias[(2 * h + 1) * a->tokens + j - i] += ds[j] / a->scale;
				if (a->score_cap > 0)
					ds[j] *= 1 - pow(score_of(a, h, i, j) / a->score_cap, 2);
				for (int64_t d = 0; d < a->head_dim; d++) {
					a->dv[kv_at(a, j, h, d)] += p[j] * a->dout[out_at(a, i, h, d)];
					a->dq[q_at(a, i, h, d)] += ds[j] * a->k[kv_at(a, j, h, d)];
					a->dk[kv_at(a, j, h, d)] += ds[j] * a->q[q_at(a, i, h, d)];
				}
			}
		}
}

#endif
