/* links: host_cpu */
/* also: tsan cuda */
/* Attention, forward and backward, against fp64 and finite differences. */
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

static double p_rounding_bf16(int64_t head_dim)
{
#ifdef FERRY_TEST_CUDA
	(void)head_dim;
	return EPS_BF16;
#else
	return attention_bf16(head_dim, 1) ? EPS_BF16 : 0;
#endif
}

static double largest(const double *x, int64_t count)
{
	double best = 0;

	for (int64_t i = 0; i < count; i++)
		best = fabs(x[i]) > best ? fabs(x[i]) : best;
	return best;
}

static void bounds_find(struct bounds *b, const struct attention *a, enum dtype dtype)
{
	int64_t qkv = a->tokens * a->qkv_stride, out = a->tokens * a->out_stride;

	b->q = largest(a->q, qkv);
	b->k = largest(a->k, qkv);
	b->v = largest(a->v, qkv);
	b->dout = largest(a->dout, out);
	b->score =
	        EPS_F32 * ((double)(a->head_dim + 4) * (double)a->head_dim * b->q * b->k * a->scale / 3 + 24);
	b->slope = 0;
	if (a->score_cap > 0) { /* tanh and its slope, which changes by less than 0.8 / score_cap */
		b->score += 4 * EPS_F32 * a->score_cap;
		b->slope = b->score / a->score_cap + 8 * EPS_F32;
	}
	b->out_rounding = dtype == DTYPE_BF16 ? EPS_BF16 : EPS_F32;
	b->p_rounding = dtype == DTYPE_BF16 ? p_rounding_bf16(a->head_dim) : 0;
}

static void forward_check(struct ops_case *c, const struct attention *a, const struct bounds *b,
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

static void view_check(
        struct ops_case *c, const struct view *v, int64_t at, double want, double bound, const char *what)
{
	case_check(c, v->tensor, v->base + at, want, bound, what);
}

static void backward_check(
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
	enum dtype dtype;
};

/* dsink is added to: `before` holds what was there. */
static void sink_check(struct ops_case *c, const struct attention *a, const struct bounds *b,
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

static void operands_alloc(struct operands *o, struct ops_case *c, const struct attention *a,
        enum dtype dtype, enum layout layout, int has_sink)
{
	o->dtype = dtype;
	o->sink = has_sink ? case_tensor(c, a->heads, dtype, 1) : NULL;
	o->dsink = has_sink ? case_tensor(c, a->heads, DTYPE_F32, 1) : NULL;
	o->in = views_alloc(c, a, dtype, layout);
	o->out = case_tensor(c, (a->tokens - 1) * a->out_stride + a->heads * a->head_dim, dtype, 1);
	o->lse = case_tensor(c, a->tokens * a->heads, DTYPE_F32, 1);
	o->dout = case_tensor(c, o->out->count, dtype, 1);
	o->grads = views_alloc(c, a, dtype, layout);
	o->scratch = case_tensor(c, attention_scratch_count(a->tokens, a->heads, a->head_dim), DTYPE_F32, 1);
}

static struct op forward_op(const struct ops_case *c, const struct attention *a, const struct operands *o)
{
	return (struct op){.kind = OP_ATTENTION,
	        .attention = {.out = tensor_addr(o->out),
	                .lse = tensor_addr(o->lse),
	                .q = view_addr(&o->in.q),
	                .k = view_addr(&o->in.k),
	                .v = view_addr(&o->in.v),
	                .doc_start = tensor_addr(&c->tensors[0]),
	                .doc_end = tensor_addr(&c->tensors[1]),
	                .tokens = a->tokens,
	                .documents = a->documents,
	                .document_tokens = a->document_tokens,
	                .heads = a->heads,
	                .kv_heads = a->kv_heads,
	                .head_dim = a->head_dim,
	                .window = a->window,
	                .qkv_stride = a->qkv_stride,
	                .q_head_stride = a->q_head_stride,
	                .kv_head_stride = a->kv_head_stride,
	                .out_stride = a->out_stride,
	                .sink = o->sink ? tensor_addr(o->sink) : DEV_NONE,
	                .scale = a->scale,
	                .score_cap = a->score_cap,
	                .mask = a->mask,
	                .dtype = o->dtype}};
}

static struct op backward_op(const struct ops_case *c, const struct attention *a, const struct operands *o)
{
	return (struct op){.kind = OP_ATTENTION_GRAD,
	        .attention_grad = {.dsink = o->dsink ? tensor_addr(o->dsink) : DEV_NONE,
	                .dq = view_addr(&o->grads.q),
	                .dk = view_addr(&o->grads.k),
	                .dv = view_addr(&o->grads.v),
	                .dout = tensor_addr(o->dout),
	                .out = tensor_addr(o->out),
	                .lse = tensor_addr(o->lse),
	                .q = view_addr(&o->in.q),
	                .k = view_addr(&o->in.k),
	                .v = view_addr(&o->in.v),
	                .doc_start = tensor_addr(&c->tensors[0]),
	                .doc_end = tensor_addr(&c->tensors[1]),
	                .scratch = tensor_addr(o->scratch),
	                .tokens = a->tokens,
	                .documents = a->documents,
	                .document_tokens = a->document_tokens,
	                .heads = a->heads,
	                .kv_heads = a->kv_heads,
	                .head_dim = a->head_dim,
	                .window = a->window,
	                .qkv_stride = a->qkv_stride,
	                .q_head_stride = a->q_head_stride,
	                .kv_head_stride = a->kv_head_stride,
	                .out_stride = a->out_stride,
	                .sink = o->sink ? tensor_addr(o->sink) : DEV_NONE,
	                .scale = a->scale,
	                .score_cap = a->score_cap,
	                .mask = a->mask,
	                .dtype = o->dtype}};
}

/* ---- errors as a whole ----
 *
 * The bounds above hold for the worst case, which is far above what happens. An error in a rare branch, say
 * of the slope of a cap, can hide below them. So the root of the sum of squares of all errors is held to a
 * rounding of the terms, each an error of its own. What is right stays below two thirds of that. */

struct whole {
	double off, terms; /* sums of squares: of the errors, and of the terms of the sums */
};

static void whole_add(struct whole *w, const struct view *v, int64_t at, double want)
{
	double off = tensor_get(v->tensor, v->base + at) - want;

	w->off += off * off;
	w->terms += want * want;
}

/* Adds the squares of the terms of dq, dk, dv and out of head h and query i. */
static void terms_add(const struct attention *a, int64_t h, int64_t i, struct whole *q, struct whole *k,
        struct whole *v, struct whole *out)
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

static void whole_check(struct ops_case *c, const struct attention *a, const struct operands *o)
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
static void attention_check(struct ops_case *c, struct attention *a, struct operands *o, int whole)
{
	const struct view dout = {o->dout, 0};
	double before[16];
	struct bounds b;
	struct op op;

	attention_alloc(a, o->sink != NULL);
	assert_true(a->heads <= 16);
	for (int64_t h = 0; o->sink && h < a->heads; h++) {
		a->sink[h] = tensor_get(o->sink, h);
		before[h] = tensor_get(o->dsink, h);
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
	if (whole)
		whole_check(c, a, o);
	case_forget(o->scratch);
	case_end(c);
	attention_free(a);
}

static void attention_try(uint64_t seed, int64_t high)
{
	struct ops_case c;
	struct attention a;
	struct operands o;
	int has_sink;

	case_begin(&c, "attention", seed);
	attention_random(&c, &a, &has_sink, high);
	operands_alloc(&o, &c, &a, case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32, LAYOUT_APART, has_sink);
	attention_check(&c, &a, &o, 1);
}

static void tensor_refill(struct ops_case *c, struct tensor *t, double scale)
{
	for (int64_t i = 0; i < t->count; i++)
		tensor_set(t, i, scale * case_normal(c));
}

static void setting_try(const struct setting *s, uint64_t seed)
{
	struct ops_case c;
	struct attention a;
	struct operands o;

	case_begin(&c, "setting", seed);
	c.phase = s->misfit;
	attention_set(&c, &a, s);
	operands_alloc(&o, &c, &a, s->dtype, s->layout, s->has_sink);
	if (s->magnitude > 0 && s->layout == LAYOUT_APART) {
		tensor_refill(&c, o.in.q.tensor, s->magnitude);
		tensor_refill(&c, o.in.k.tensor, s->magnitude);
	}
	attention_check(&c, &a, &o, s->magnitude == 0);
}

static void test_small(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(120); seed += seed_step())
		attention_try(seed, 24);
}

/* Several blocks of queries and keys, borders inside them. */
static void test_blocks(void **state)
{
	(void)state;
	for (uint64_t seed = 1000; seed < 1000 + case_count(24); seed += seed_step())
		attention_try(seed, seed_step() > 1 ? 140 : 330);
}

/* Edge cases of tiles: lengths near multiples of tiles, borders of documents inside tiles and at their
 * borders, smaller and larger windows. Also every width of tile, full or not, every ratio of heads to kv
 * heads, operands in fused rows, and operands without alignment. */
static const struct setting settings[] = {
        {.tokens = 1, .heads = 2, .kv_heads = 1, .head_dim = 64},
        {.tokens = 63, .heads = 1, .kv_heads = 1, .head_dim = 8},
        {.tokens = 65, .heads = 2, .kv_heads = 2, .head_dim = 16, .lengths = {1, 63}},
        {.tokens = 34, .heads = 4, .kv_heads = 1, .head_dim = 40, .layout = LAYOUT_FUSED},
        {.tokens = 128, .heads = 1, .kv_heads = 1, .head_dim = 64, .lengths = {64}},
        {.tokens = 17, .heads = 7, .kv_heads = 1, .head_dim = 64, .window = 5, .gap = 8},
        {.tokens = 194, .heads = 1, .kv_heads = 1, .head_dim = 32, .window = 70},
        {.tokens = 193, .heads = 1, .kv_heads = 1, .head_dim = 24, .lengths = {1, 1, 126, 3, 37}},
        {.tokens = 66, .heads = 2, .kv_heads = 1, .head_dim = 80, .layout = LAYOUT_FUSED},
        {.tokens = 129, .heads = 1, .kv_heads = 1, .head_dim = 96, .window = 64, .lengths = {70}},
        {.tokens = 131, .heads = 1, .kv_heads = 1, .head_dim = 128, .lengths = {31, 33, 65}},
        {.tokens = 63, .heads = 2, .kv_heads = 2, .head_dim = 64, .layout = LAYOUT_INTERLEAVED},
        {.tokens = 97, .heads = 1, .kv_heads = 1, .head_dim = 128, .window = 33, .misfit = 1},
        {.tokens = 4, .heads = 8, .kv_heads = 1, .head_dim = 128, .lengths = {3}},
        {.tokens = 130, .heads = 1, .kv_heads = 1, .head_dim = 12, .gap = 4, .lengths = {129}},
        {.tokens = 33, .heads = 1, .kv_heads = 1, .head_dim = 192, .lengths = {20}},
        {.tokens = 67, .heads = 1, .kv_heads = 1, .head_dim = 256, .window = 40},
        {.tokens = 66, .heads = 1, .kv_heads = 1, .head_dim = 264},
        {.tokens = 140, .heads = 1, .kv_heads = 1, .head_dim = 64, .magnitude = 12},
        {.tokens = 75, .heads = 1, .kv_heads = 1, .head_dim = 128, .magnitude = 40},
        {.tokens = 192, .heads = 2, .kv_heads = 1, .head_dim = 64, .lengths = {96}, .layout = LAYOUT_FUSED},
        {.tokens = 210, .heads = 2, .kv_heads = 2, .head_dim = 128, .window = 20, .lengths = {70, 70}},
        {.tokens = 75, .heads = 2, .kv_heads = 1, .head_dim = 64, .mask = MASK_BIDIRECTIONAL},
        {.tokens = 100,
                .heads = 1,
                .kv_heads = 1,
                .head_dim = 40,
                .mask = MASK_BIDIRECTIONAL,
                .lengths = {64, 1},
                .window = 30},
        {.tokens = 70, .heads = 2, .kv_heads = 2, .head_dim = 80, .score_cap = 2, .lengths = {60}},
        {.tokens = 70, .heads = 4, .kv_heads = 2, .head_dim = 32, .has_sink = 1, .window = 50},
        {.tokens = 70,
                .heads = 2,
                .kv_heads = 1,
                .head_dim = 72,
                .mask = MASK_BIDIRECTIONAL,
                .score_cap = 0.7,
                .has_sink = 1},
        {.tokens = 66, .heads = 2, .kv_heads = 1, .head_dim = 24, .has_sink = 1, .magnitude = 12},
        {.tokens = 66, .heads = 2, .kv_heads = 1, .head_dim = 512, .lengths = {50}},
        {.tokens = 201,
                .heads = 2,
                .kv_heads = 1,
                .head_dim = 128,
                .mask = MASK_BIDIRECTIONAL,
                .lengths = {65, 1, 100}},
        {.tokens = 150,
                .heads = 2,
                .kv_heads = 2,
                .head_dim = 256,
                .mask = MASK_BIDIRECTIONAL,
                .window = 21,
                .lengths = {100}},
        {.tokens = 140,
                .heads = 2,
                .kv_heads = 1,
                .head_dim = 256,
                .score_cap = 3,
                .window = 64,
                .misfit = 3},
        {.tokens = 200,
                .heads = 3,
                .kv_heads = 1,
                .head_dim = 128,
                .score_cap = 1.5,
                .has_sink = 1,
                .lengths = {130}},
        {.tokens = 131,
                .heads = 1,
                .kv_heads = 1,
                .head_dim = 96,
                .score_cap = 20,
                .magnitude = 6,
                .mask = MASK_BIDIRECTIONAL,
                .has_sink = 1,
                .window = 90},
        {.tokens = 140, .heads = 8, .kv_heads = 1, .head_dim = 64, .window = 128, .has_sink = 1},
};

static void test_tiles(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i += SANITIZED ? 3 : 1) {
		struct setting s = settings[i];

		if (s.head_dim <= 96 && getenv("FERRY_SIMT_CAPABILITY")) /* its tiles fit any GPU */
			continue;
		s.dtype = DTYPE_BF16;
		setting_try(&s, i);
		if (i % 4 == 3 || s.mask || s.score_cap > 0 || s.has_sink) {
			s.dtype = DTYPE_F32;
			setting_try(&s, i);
		}
	}
}

static double attention_value(void *context)
{
	struct attention *a = context;
	double sum = 0;

	reference_forward(a);
	for (int64_t t = 0; t < a->tokens; t++)
		for (int64_t i = 0; i < a->heads * a->head_dim; i++)
			sum += a->out[t * a->out_stride + i] * a->dout[t * a->out_stride + i];
	return sum;
}

static void test_reference(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(20); seed++) {
		struct ops_case c;
		struct attention a;
		double *inputs[3], *slopes[3];
		int has_sink;

		case_begin(&c, "reference", seed);
		attention_random(&c, &a, &has_sink, 8);
		attention_alloc(&a, has_sink);
		for (int64_t h = 0; has_sink && h < a.heads; h++)
			a.sink[h] = case_normal(&c);
		for (int64_t i = 0; i < a.tokens * a.qkv_stride; i++)
			a.q[i] = case_normal(&c), a.k[i] = case_normal(&c), a.v[i] = case_normal(&c);
		for (int64_t i = 0; i < a.tokens * a.out_stride; i++)
			a.dout[i] = case_normal(&c);
		reference_forward(&a);
		reference_backward(&a);
		inputs[0] = a.q, inputs[1] = a.k, inputs[2] = a.v;
		slopes[0] = a.dq, slopes[1] = a.dk, slopes[2] = a.dv;
		for (int n = 0; n < 3; n++)
			for (int i = 0; i < 8; i++) {
				int64_t at = case_int(&c, 0, a.tokens * a.qkv_stride - 1);

				case_derivative(attention_value, &a, &inputs[n][at], slopes[n][at], 1);
			}
		for (int64_t h = 0; has_sink && h < a.heads; h++)
			case_derivative(attention_value, &a, &a.sink[h], a.dsink[h], 1);
		for (int n = 0; n < c.tensor_count; n++)
			memcpy(c.tensors[n].first, c.tensors[n].block, (size_t)c.tensors[n].bytes);
		case_end(&c);
		attention_free(&a);
	}
}

/* Scores so large that exp would overflow, and so small that a row keeps one key. */
static void test_range(void **state)
{
	(void)state;
	for (int n = 0; n < 2; n++) {
		struct ops_case c;
		struct tensor *start, *end, *x, *v, *out, *lse;
		struct op op = {.kind = OP_ATTENTION};

		case_begin(&c, "range", (uint64_t)n);
		start = case_tensor(&c, 200, DTYPE_I32, 1);
		end = case_tensor(&c, 200, DTYPE_I32, 1);
		x = case_tensor(&c, 200, DTYPE_F32, 1);
		v = case_tensor(&c, 200, DTYPE_F32, 1);
		out = case_tensor(&c, 200, DTYPE_F32, 1);
		lse = case_tensor(&c, 200, DTYPE_F32, 1);
		for (int64_t i = 0; i < 200; i++) {
			tensor_set(end, i, 200);
			/* q = k = i + 1 in front of a large scale: each token sees itself alone, or the first
			 */
			tensor_set(x, i, (double)(n ? 200 - i : i + 1));
		}
		op.attention = (struct op_attention){.out = tensor_addr(out),
		        .lse = tensor_addr(lse),
		        .q = tensor_addr(x),
		        .k = tensor_addr(x),
		        .v = tensor_addr(v),
		        .doc_start = tensor_addr(start),
		        .doc_end = tensor_addr(end),
		        .tokens = 200,
		        .heads = 1,
		        .kv_heads = 1,
		        .head_dim = 1,
		        .qkv_stride = 1,
		        .q_head_stride = 1,
		        .kv_head_stride = 1,
		        .out_stride = 1,
		        .scale = 1000,
		        .dtype = DTYPE_F32};
		case_run(&c, &op);
		for (int64_t i = 0; i < 200; i++) {
			double score = 1000.0 * tensor_get(x, i) * (n ? 200 : tensor_get(x, i));

			case_check(&c, out, i, tensor_get(v, n ? 0 : i), 0, "out");
			case_check(&c, lse, i, score, score * EPS_F32, "lse");
		}
		case_end(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_reference),
	        cmocka_unit_test(test_small),
	        cmocka_unit_test(test_blocks),
	        cmocka_unit_test(test_tiles),
	        cmocka_unit_test(test_range),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
