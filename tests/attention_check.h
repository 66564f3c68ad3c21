/* Attention and its gradient against the reference in double, with bounds for each number and for all. */
#ifndef FERRY_TESTS_ATTENTION_CHECK_H
#define FERRY_TESTS_ATTENTION_CHECK_H

#include "tests/attention_case.h"

#include "host/cpu/attention_bf16.h"

/* Bounds. A score is off by about (head_dim + 4) eps of the sum of |q k| scale, here `score`. A
 * probability is off by that, relative to itself. out is a mean of v with 2 tokens more roundings: it is
 * off by the sum of both, times max |v|. The same holds for each term of a gradient, times max |dout| and
 * so on. In bf16, the rounding of out also enters delta.
 *
 * Tensor cores, and CPUs with products of bf16, multiply bf16 by bf16. So probabilities are rounded to bf16
 * for their product with v or dout: out is off by that much more of max |v|. Gradients of scores, up to
 * 2 max |dp|, are rounded for their products with k and q.
 */
struct bounds {
	double score, slope, q, k, v, dout, out_rounding, p_rounding;
};

static inline double p_rounding_bf16(int64_t head_dim)
{
#ifdef FERRY_TEST_CUDA
	(void)head_dim;
	return EPS_BF16;
#else
	return attention_bf16(head_dim, 1) ? EPS_BF16 : 0;
#endif
}

static inline double largest(const double *x, int64_t count)
{
	double best = 0;

	for (int64_t i = 0; i < count; i++)
		best = fabs(x[i]) > best ? fabs(x[i]) : best;
	return best;
}

static inline void bounds_find(struct bounds *b, const struct attention *a, enum dtype dtype)
{
	int64_t qkv = a->tokens * a->qkv_stride, out = a->tokens * a->out_stride;

	b->q = largest(a->q, qkv);
	b->k = largest(a->k, qkv);
	b->v = largest(a->v, qkv);
	b->dout = largest(a->dout, out);
	b->score =
	        EPS_F32 * ((double)(a->head_dim + 4) * (double)a->head_dim * b->q * b->k * a->scale / 3 + 24);
	if (a->bias)
		b->score += 2 * EPS_F32 * largest(a->bias, 2 * a->heads * a->tokens);
	b->slope = 0;
	if (a->score_cap > 0) { /* tanh and its slope, which changes by less than 0.8 / score_cap */
		b->score += 4 * EPS_F32 * a->score_cap;
		b->slope = b->score / a->score_cap + 8 * EPS_F32;
	}
	b->out_rounding = dtype == DTYPE_BF16 ? EPS_BF16 : EPS_F32;
	b->p_rounding = dtype == DTYPE_BF16 ? p_rounding_bf16(a->head_dim) : 0;
}

static inline void forward_check(struct ops_case *c, const struct attention *a, const struct bounds *b,
        struct tensor *out, struct tensor *lse)
{
	double bound = b->v * (b->score + (double)(a->tokens + 8) * EPS_F32 + b->p_rounding);

	for (int64_t t = 0; t < a->tokens; t++)
		for (int64_t h = 0; h < a->heads; h++) {
			case_check(c, lse, t * a->heads + h, a->lse[t * a->heads + h], b->score + 8 * EPS_F32,
			        "lse");
			for (int64_t d = 0; d < a->head_dim; d++)
				case_check(
				        c, out, out_at(a, t, h, d), a->out[out_at(a, t, h, d)], bound, "out");
		}
}

static inline void view_check(
        struct ops_case *c, const struct view *v, int64_t at, double want, double bound, const char *what)
{
	case_check(c, v->tensor, v->base + at, want, bound, what);
}

static inline void backward_check(
        struct ops_case *c, const struct attention *a, const struct bounds *b, const struct views *grads)
{
	double dp = (double)a->head_dim * b->dout * b->v;
	double p_off = b->score + (double)(a->tokens + 8) * EPS_F32;
	double ds_off = a->scale * dp *
	                (4 * p_off + 2 * (double)(a->head_dim + 4) * EPS_F32 + b->out_rounding +
	                        3 * b->p_rounding + 2 * b->slope);

	for (int64_t t = 0; t < a->tokens; t++)
		for (int64_t d = 0; d < a->head_dim; d++) {
			for (int64_t h = 0; h < a->heads; h++)
				view_check(c, &grads->q, q_at(a, t, h, d), a->dq[q_at(a, t, h, d)],
				        ds_off * b->k, "dq");
			for (int64_t g = 0; g < a->kv_heads; g++) {
				int64_t h = g * (a->heads / a->kv_heads), at = kv_at(a, t, h, d);
				double p_sum = 0; /* how much probability this key gets in all */

				for (int64_t i = 0; i < a->tokens; i++)
					for (int64_t n = h; n < h + a->heads / a->kv_heads; n++)
						p_sum += a->p[(n * a->tokens + i) * a->tokens + t];
				view_check(c, &grads->k, at, a->dk[at], p_sum * ds_off * b->q + 1e-30, "dk");
				view_check(c, &grads->v, at, a->dv[at],
				        p_sum * (p_off + b->p_rounding) * b->dout + 1e-30, "dv");
			}
		}
}

/* Where the op finds what it works on. */
struct operands {
	struct views in, grads;
	struct tensor *out, *lse, *dout, *scratch;
	struct tensor *sink, *dsink; /* NULL: there is none */
	struct tensor *bias, *dbias;
	enum dtype dtype;
};

/* dsink is added to: `before` holds what was there. */
static inline void sink_check(struct ops_case *c, const struct attention *a, const struct bounds *b,
        struct tensor *dsink, const double *before)
{
	double dp = (double)a->head_dim * b->dout * b->v;
	double off = dp * (2 * b->score + (double)(2 * a->tokens + a->head_dim + 16) * EPS_F32 +
	                          b->out_rounding + b->p_rounding);

	for (int64_t h = 0; h < a->heads; h++) {
		double p_sum = 0;

		for (int64_t t = 0; t < a->tokens; t++)
			p_sum += exp(a->sink[h] - a->lse[t * a->heads + h]);
		case_check(c, dsink, h, before[h] + a->dsink[h],
		        p_sum * off + 2 * EPS_F32 * (fabs(before[h]) + fabs(a->dsink[h])), "dsink");
	}
}

/* dbias is added to: `before` holds what was there. Each pair of tokens at a distance adds its ds. */
static inline void bias_check(struct ops_case *c, const struct attention *a, const struct bounds *b,
        struct tensor *dbias, const double *before)
{
	double dp = (double)a->head_dim * b->dout * b->v,
	       p_off = b->score + (double)(a->tokens + 8) * EPS_F32;
	double ds_off = dp * (4 * p_off + 2 * (double)(a->head_dim + 4) * EPS_F32 + b->out_rounding +
	                             3 * b->p_rounding);

	for (int64_t n = 0; n < 2 * a->heads * a->tokens; n++) {
		int64_t h = n / (2 * a->tokens), distance = n % (2 * a->tokens) - a->tokens;
		double p_sum = 0, terms = fabs(before[n]);

		for (int64_t i = 0; i < a->tokens; i++)
			if (i + distance >= 0 && i + distance < a->tokens) {
				double p = a->p[(h * a->tokens + i) * a->tokens + i + distance];

				p_sum += p;
				terms += 2 * p * dp;
			}
		case_check(c, dbias, n, before[n] + a->dbias[n],
		        p_sum * ds_off + (double)(a->tokens + 2) * EPS_F32 * terms + 1e-30, "dbias");
	}
}

static inline void operands_alloc(struct operands *o, struct ops_case *c, const struct attention *a,
        enum dtype dtype, enum layout layout, int has_sink, int has_bias)
{
	o->dtype = dtype;
	o->bias = has_bias ? case_tensor(c, 2 * a->heads * a->tokens, dtype, 1) : NULL;
	o->dbias = has_bias ? case_tensor(c, 2 * a->heads * a->tokens, DTYPE_F32, 1) : NULL;
	o->sink = has_sink ? case_tensor(c, a->heads, dtype, 1) : NULL;
	o->dsink = has_sink ? case_tensor(c, a->heads, DTYPE_F32, 1) : NULL;
	o->in = views_alloc(c, a, dtype, layout);
	o->out = case_tensor(c, (a->tokens - 1) * a->out_stride + a->heads * a->head_dim, dtype, 1);
	o->lse = case_tensor(c, a->tokens * a->heads, DTYPE_F32, 1);
	o->dout = case_tensor(c, o->out->count, dtype, 1);
	o->grads = views_alloc(c, a, dtype, layout);
	o->scratch = case_tensor(c,
	        attention_scratch_count(a->tokens, a->heads, a->head_dim) +
	                (has_bias ? attention_bias_scratch_count(a->tokens, a->heads) : 0),
	        DTYPE_F32, 1);
}

/* What forward and backward take alike. */
#define ATTENTION_ARGUMENTS(c, a, o)                                                                         \
	.out = tensor_addr((o)->out), .lse = tensor_addr((o)->lse), .q = view_addr(&(o)->in.q),              \
	.k = view_addr(&(o)->in.k), .v = view_addr(&(o)->in.v), .doc_start = tensor_addr(&(c)->tensors[0]),  \
	.doc_end = tensor_addr(&(c)->tensors[1]), .tokens = (a)->tokens, .documents = (a)->documents,        \
	.document_tokens = (a)->document_tokens, .heads = (a)->heads, .kv_heads = (a)->kv_heads,             \
	.head_dim = (a)->head_dim, .window = (a)->window, .qkv_stride = (a)->qkv_stride,                     \
	.q_head_stride = (a)->q_head_stride, .kv_head_stride = (a)->kv_head_stride,                          \
	.out_stride = (a)->out_stride, .sink = (o)->sink ? tensor_addr((o)->sink) : DEV_NONE,                \
	.bias = (o)->bias ? tensor_addr((o)->bias) : DEV_NONE, .scale = (a)->scale,                          \
	.score_cap = (a)->score_cap, .mask = (a)->mask, .dtype = (o)->dtype

static inline struct op forward_op(
        const struct ops_case *c, const struct attention *a, const struct operands *o)
{
	return (struct op){.kind = OP_ATTENTION, .attention = {ATTENTION_ARGUMENTS(c, a, o)}};
}

static inline struct op backward_op(
        const struct ops_case *c, const struct attention *a, const struct operands *o)
{
	return (struct op){.kind = OP_ATTENTION_GRAD,
	        .attention_grad = {.dsink = o->dsink ? tensor_addr(o->dsink) : DEV_NONE,
	                .dbias = o->dbias ? tensor_addr(o->dbias) : DEV_NONE,
	                .dq = view_addr(&o->grads.q),
	                .dk = view_addr(&o->grads.k),
	                .dv = view_addr(&o->grads.v),
	                .dout = tensor_addr(o->dout),
	                .scratch = tensor_addr(o->scratch),
	                ATTENTION_ARGUMENTS(c, a, o)}};
}

/* ---- errors as a whole ----
 *
 * The bounds above hold for the worst case, which is far above what happens. An error in a rare branch, say
 * of the slope of a cap, can hide below them. So the root of the sum of squares of all errors is held to a
 * rounding of the terms, each an error of its own. What is right stays below two thirds of that. */

struct whole {
	double off, terms; /* sums of squares: of the errors, and of the terms of the sums */
};

static inline void whole_add(struct whole *w, const struct view *v, int64_t at, double want)
{
	double off = tensor_get(v->tensor, v->base + at) - want;

	w->off += off * off;
	w->terms += want * want;
}

/* Adds the squares of the terms of dq, dk, dv and out of head h and query i. */
static inline void terms_add(const struct attention *a, int64_t h, int64_t i, struct whole *q,
        struct whole *k, struct whole *v, struct whole *out)
{
	double dp[512], mean = 0, norm[3];

	for (int64_t j = 0; j < a->tokens; j++) {
		dp[j] = 0;
		for (int64_t d = 0; d < a->head_dim; d++)
			dp[j] += a->dout[out_at(a, i, h, d)] * a->v[kv_at(a, j, h, d)];
		mean += a->p[(h * a->tokens + i) * a->tokens + j] * dp[j];
	}
	for (int64_t j = 0; j < a->tokens; j++) {
		double p = a->p[(h * a->tokens + i) * a->tokens + j];
		double ds = p * (fabs(dp[j]) + fabs(mean)) * a->scale;

		norm[0] = norm[1] = norm[2] = 0;
		for (int64_t d = 0; d < a->head_dim; d++) {
			norm[0] += pow(a->k[kv_at(a, j, h, d)], 2);
			norm[1] += pow(a->q[q_at(a, i, h, d)], 2);
			norm[2] += pow(a->dout[out_at(a, i, h, d)], 2);
			out->terms += pow(p * a->v[kv_at(a, j, h, d)], 2);
		}
		q->terms += ds * ds * norm[0];
		k->terms += ds * ds * norm[1];
		v->terms += p * p * norm[2];
	}
}

static inline void whole_check(struct ops_case *c, const struct attention *a, const struct operands *o)
{
	static const char *const names[] = {"dq", "dk", "dv", "out"};
	const struct view out = {o->out, 0};
	struct whole w[4] = {{0, 0}};
	double eps = o->dtype == DTYPE_BF16 ? EPS_BF16 : (double)(a->head_dim + 8) * EPS_F32;

	assert_true(a->tokens <= 512);
	for (int64_t t = 0; t < a->tokens; t++) {
		for (int64_t h = 0; h < a->heads; h++) {
			terms_add(a, h, t, &w[0], &w[1], &w[2], &w[3]);
			for (int64_t d = 0; d < a->head_dim; d++) {
				int64_t at = q_at(a, t, h, d);

				whole_add(&w[0], &o->grads.q, at, a->dq[at]);
				at = out_at(a, t, h, d);
				whole_add(&w[3], &out, at, a->out[at]);
			}
		}
		for (int64_t g = 0; g < a->kv_heads; g++)
			for (int64_t d = 0; d < a->head_dim; d++) {
				int64_t at = kv_at(a, t, g * (a->heads / a->kv_heads), d);

				whole_add(&w[1], &o->grads.k, at, a->dk[at]);
				whole_add(&w[2], &o->grads.v, at, a->dv[at]);
			}
	}
	for (int n = 0; n < 4; n++)
		if (!(sqrt(w[n].off) <= eps * sqrt(w[n].terms) + 1e-15))
			fail_msg("%s, seed %llu: %s is off by %g of its terms as a whole", c->name,
			        (unsigned long long)c->seed, names[n], sqrt(w[n].off / w[n].terms));
}

/* Forward and backward against the reference, with `whole` also as a whole; ends the case. */
static inline void attention_check(struct ops_case *c, struct attention *a, struct operands *o, int whole)
{
	const struct view dout = {o->dout, 0};
	double before[16], *bias_before = o->bias ? take(2 * a->heads * a->tokens) : NULL;
	struct bounds b;
	struct op op;

	attention_alloc(a, o->sink != NULL, o->bias != NULL);
	assert_true(a->heads <= 16);
	for (int64_t h = 0; o->sink && h < a->heads; h++) {
		a->sink[h] = tensor_get(o->sink, h);
		before[h] = tensor_get(o->dsink, h);
	}
	for (int64_t n = 0; o->bias && n < 2 * a->heads * a->tokens; n++) {
		a->bias[n] = tensor_get(o->bias, n);
		bias_before[n] = tensor_get(o->dbias, n);
	}
	to_double(a->q, &o->in.q);
	to_double(a->k, &o->in.k);
	to_double(a->v, &o->in.v);
	to_double(a->dout, &dout);
	reference_forward(a);
	reference_backward(a);
	bounds_find(&b, a, o->dtype);
	op = forward_op(c, a, o);
	case_run(c, &op);
	forward_check(c, a, &b, o->out, o->lse);
	op = backward_op(c, a, o);
	case_run(c, &op);
	backward_check(c, a, &b, &o->grads);
	if (o->sink)
		sink_check(c, a, &b, o->dsink, before);
	if (o->bias)
		bias_check(c, a, &b, o->dbias, bias_before);
	if (whole)
		whole_check(c, a, o);
	case_forget(o->scratch);
	case_end(c);
	attention_free(a);
	mem_free(bias_before);
}

static inline void tensor_refill(struct ops_case *c, struct tensor *t, double scale)
{
	for (int64_t i = 0; i < t->count; i++)
		tensor_set(t, i, scale * case_normal(c));
}

static inline void setting_try(const struct setting *s, uint64_t seed)
{
	struct ops_case c;
	struct attention a;
	struct operands o;

	case_begin(&c, "setting", seed);
	c.phase = s->misfit;
	attention_set(&c, &a, s);
	operands_alloc(&o, &c, &a, s->dtype, s->layout, s->has_sink, s->has_bias);
	if (s->magnitude > 0 && s->layout == LAYOUT_APART) {
		tensor_refill(&c, o.in.q.tensor, s->magnitude);
		tensor_refill(&c, o.in.k.tensor, s->magnitude);
	}
	attention_check(&c, &a, &o, s->magnitude == 0);
}

#endif
