/* links: host_cpu */
/* also: tsan cuda */
#include "tests/ops_check.h"

/* The reference: attention in double, every score formed, forward and backward. Layout as in the op. */
struct attention {
	int64_t tokens, heads, kv_heads, head_dim, window;
	int64_t qkv_stride, q_head_stride, kv_head_stride, out_stride;
	double scale;
	const int32_t *doc_start;
	double *q, *k, *v, *out, *lse, *dout, *dq, *dk, *dv;
	double *p, *ds; /* [heads, tokens, tokens] */
};

static int64_t q_at(const struct attention *a, int64_t t, int64_t h, int64_t d)
{
	return t * a->qkv_stride + h * a->q_head_stride + d;
}

static int64_t kv_at(const struct attention *a, int64_t t, int64_t h, int64_t d)
{
	return t * a->qkv_stride + h / (a->heads / a->kv_heads) * a->kv_head_stride + d;
}

static int64_t out_at(const struct attention *a, int64_t t, int64_t h, int64_t d)
{
	return t * a->out_stride + h * a->head_dim + d;
}

static int sees(const struct attention *a, int64_t i, int64_t j)
{
	return j >= a->doc_start[i] && j <= i && (a->window == 0 || j > i - a->window);
}

static void reference_forward(struct attention *a)
{
	for (int64_t h = 0; h < a->heads; h++)
		for (int64_t i = 0; i < a->tokens; i++) {
			double *p = a->p + (h * a->tokens + i) * a->tokens, max = -INFINITY, sum = 0;

			for (int64_t j = 0; j < a->tokens; j++) {
				double s = 0;

				for (int64_t d = 0; d < a->head_dim; d++)
					s += a->q[q_at(a, i, h, d)] * a->k[kv_at(a, j, h, d)];
				p[j] = sees(a, i, j) ? s * a->scale : -INFINITY;
				max = p[j] > max ? p[j] : max;
			}
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

/* dq, dk, dv must be zero; needs p of reference_forward. */
static void reference_backward(struct attention *a)
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
			for (int64_t j = 0; j < a->tokens; j++) {
				if (!sees(a, i, j))
					continue;
				ds[j] = p[j] * (ds[j] - mean) * a->scale;
				for (int64_t d = 0; d < a->head_dim; d++) {
					a->dv[kv_at(a, j, h, d)] += p[j] * a->dout[out_at(a, i, h, d)];
					a->dq[q_at(a, i, h, d)] += ds[j] * a->k[kv_at(a, j, h, d)];
					a->dk[kv_at(a, j, h, d)] += ds[j] * a->q[q_at(a, i, h, d)];
				}
			}
		}
}

/* A random shape, at most `high` tokens; documents as int32 tensors 0 (start) and 1 (end) of the case. */
static void attention_random(struct ops_case *c, struct attention *a, int64_t high)
{
	struct tensor *start, *end;
	int64_t group = case_int(c, 1, 3), at = 0;

	*a = (struct attention){.tokens = case_size(c, high), .kv_heads = case_int(c, 1, 3)};
	a->heads = a->kv_heads * group;
	a->head_dim = case_int(c, 0, 3) ? case_size(c, 24) : case_size(c, 80);
	a->window = case_int(c, 0, 2) ? 0 : case_size(c, high);
	a->scale = case_int(c, 0, 1) ? 1 / sqrt((double)a->head_dim) : 0.1 + fabs(case_uniform(c));
	a->q_head_stride = a->head_dim + (case_int(c, 0, 2) ? 0 : case_int(c, 0, 5));
	a->kv_head_stride = a->head_dim + (case_int(c, 0, 2) ? 0 : case_int(c, 0, 5));
	a->qkv_stride =
	        a->heads * (a->q_head_stride > a->kv_head_stride ? a->q_head_stride : a->kv_head_stride);
	a->qkv_stride += case_int(c, 0, 7);
	a->out_stride = a->heads * a->head_dim + (case_int(c, 0, 1) ? 0 : case_int(c, 0, 7));
	start = case_tensor(c, a->tokens, DTYPE_I32, 1);
	end = case_tensor(c, a->tokens, DTYPE_I32, 1);
	while (at < a->tokens) {
		int64_t length =
		        case_int(c, 0, 1) ? case_size(c, a->tokens - at) : case_int(c, 1, a->tokens - at);

		for (int64_t i = at; i < at + length; i++) {
			tensor_set(start, i, (double)at);
			tensor_set(end, i, (double)(at + length));
		}
		at += length;
	}
	a->doc_start = (const int32_t *)(start->block + start->offset);
}

static double *take(int64_t count)
{
	double *x = mem_alloc((size_t)count, sizeof *x);

	assert_non_null(x);
	return x;
}

static void attention_alloc(struct attention *a)
{
	int64_t qkv = a->tokens * a->qkv_stride, out = a->tokens * a->out_stride;

	a->q = take(qkv), a->k = take(qkv), a->v = take(qkv), a->dq = take(qkv), a->dk = take(qkv),
	a->dv = take(qkv);
	a->out = take(out), a->dout = take(out), a->lse = take(a->tokens * a->heads);
	a->p = take(a->heads * a->tokens * a->tokens), a->ds = take(a->heads * a->tokens * a->tokens);
}

static void attention_free(struct attention *a)
{
	double *all[] = {a->q, a->k, a->v, a->dq, a->dk, a->dv, a->out, a->dout, a->lse, a->p, a->ds};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		mem_free(all[i]);
}

static void to_double(double *x, const struct tensor *t)
{
	for (int64_t i = 0; i < t->count; i++)
		x[i] = tensor_get(t, i);
}

/* Bounds. A score is off by about (head_dim + 4) eps of the sum of |q k| scale, here `score`; a probability
 * by that relative to itself, and out, being a mean of v with 2 tokens roundings more, by the sum of both
 * times max |v|. For gradients the same holds term by term, times max |dout| and so on; in bf16, out carries
 * its own rounding into delta. */
struct bounds {
	double score, q, k, v, dout, out_rounding;
};

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
	b->out_rounding = dtype == DTYPE_BF16 ? EPS_BF16 : EPS_F32;
}

static void forward_check(struct ops_case *c, const struct attention *a, const struct bounds *b,
        struct tensor *out, struct tensor *lse)
{
	double bound = b->v * (b->score + (double)(a->tokens + 8) * EPS_F32);

	for (int64_t t = 0; t < a->tokens; t++)
		for (int64_t h = 0; h < a->heads; h++) {
			case_check(c, lse, t * a->heads + h, a->lse[t * a->heads + h], b->score + 8 * EPS_F32,
			        "lse");
			for (int64_t d = 0; d < a->head_dim; d++)
				case_check(
				        c, out, out_at(a, t, h, d), a->out[out_at(a, t, h, d)], bound, "out");
		}
}

static void backward_check(struct ops_case *c, const struct attention *a, const struct bounds *b,
        struct tensor *dq, struct tensor *dk, struct tensor *dv)
{
	double dp = (double)a->head_dim * b->dout * b->v;
	double p_off = b->score + (double)(a->tokens + 8) * EPS_F32;
	double ds_off =
	        a->scale * dp * (4 * p_off + 2 * (double)(a->head_dim + 4) * EPS_F32 + b->out_rounding);

	for (int64_t t = 0; t < a->tokens; t++)
		for (int64_t d = 0; d < a->head_dim; d++) {
			for (int64_t h = 0; h < a->heads; h++)
				case_check(c, dq, q_at(a, t, h, d), a->dq[q_at(a, t, h, d)], ds_off * b->k,
				        "dq");
			for (int64_t g = 0; g < a->kv_heads; g++) {
				int64_t h = g * (a->heads / a->kv_heads), at = kv_at(a, t, h, d);
				double p_sum = 0; /* how much probability this key gets in all */

				for (int64_t i = 0; i < a->tokens; i++)
					for (int64_t n = h; n < h + a->heads / a->kv_heads; n++)
						p_sum += a->p[(n * a->tokens + i) * a->tokens + t];
				case_check(c, dk, at, a->dk[at], p_sum * ds_off * b->q + 1e-30, "dk");
				case_check(c, dv, at, a->dv[at], p_sum * p_off * b->dout + 1e-30, "dv");
			}
		}
}

static void attention_try(uint64_t seed, int64_t high)
{
	struct ops_case c;
	struct attention a;
	struct bounds b;
	struct tensor *q, *k, *v, *out, *lse, *dout, *dq, *dk, *dv, *scratch;
	struct op op = {.kind = OP_ATTENTION};
	enum dtype dtype;

	case_begin(&c, "attention", seed);
	attention_random(&c, &a, high);
	attention_alloc(&a);
	dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	q = case_tensor(
	        &c, (a.tokens - 1) * a.qkv_stride + (a.heads - 1) * a.q_head_stride + a.head_dim, dtype, 1);
	k = case_tensor(&c, (a.tokens - 1) * a.qkv_stride + (a.kv_heads - 1) * a.kv_head_stride + a.head_dim,
	        dtype, 1);
	v = case_tensor(&c, k->count, dtype, 1);
	out = case_tensor(&c, (a.tokens - 1) * a.out_stride + a.heads * a.head_dim, dtype, 1);
	lse = case_tensor(&c, a.tokens * a.heads, DTYPE_F32, 1);
	dout = case_tensor(&c, out->count, dtype, 1);
	dq = case_tensor(&c, q->count, dtype, 1);
	dk = case_tensor(&c, k->count, dtype, 1);
	dv = case_tensor(&c, v->count, dtype, 1);
	scratch = case_tensor(&c, attention_scratch_count(a.tokens, a.heads, a.head_dim), DTYPE_F32, 1);
	to_double(a.q, q);
	to_double(a.k, k);
	to_double(a.v, v);
	to_double(a.dout, dout);
	reference_forward(&a);
	reference_backward(&a);
	bounds_find(&b, &a, dtype);

	op.attention = (struct op_attention){.out = tensor_addr(out),
	        .lse = tensor_addr(lse),
	        .q = tensor_addr(q),
	        .k = tensor_addr(k),
	        .v = tensor_addr(v),
	        .doc_start = tensor_addr(&c.tensors[0]),
	        .doc_end = tensor_addr(&c.tensors[1]),
	        .tokens = a.tokens,
	        .heads = a.heads,
	        .kv_heads = a.kv_heads,
	        .head_dim = a.head_dim,
	        .window = a.window,
	        .qkv_stride = a.qkv_stride,
	        .q_head_stride = a.q_head_stride,
	        .kv_head_stride = a.kv_head_stride,
	        .out_stride = a.out_stride,
	        .scale = a.scale,
	        .dtype = dtype};
	case_run(&c, &op);
	forward_check(&c, &a, &b, out, lse);

	op = (struct op){.kind = OP_ATTENTION_GRAD};
	op.attention_grad = (struct op_attention_grad){.dq = tensor_addr(dq),
	        .dk = tensor_addr(dk),
	        .dv = tensor_addr(dv),
	        .dout = tensor_addr(dout),
	        .out = tensor_addr(out),
	        .lse = tensor_addr(lse),
	        .q = tensor_addr(q),
	        .k = tensor_addr(k),
	        .v = tensor_addr(v),
	        .doc_start = tensor_addr(&c.tensors[0]),
	        .doc_end = tensor_addr(&c.tensors[1]),
	        .scratch = tensor_addr(scratch),
	        .tokens = a.tokens,
	        .heads = a.heads,
	        .kv_heads = a.kv_heads,
	        .head_dim = a.head_dim,
	        .window = a.window,
	        .qkv_stride = a.qkv_stride,
	        .q_head_stride = a.q_head_stride,
	        .kv_head_stride = a.kv_head_stride,
	        .out_stride = a.out_stride,
	        .scale = a.scale,
	        .dtype = dtype};
	case_run(&c, &op);
	backward_check(&c, &a, &b, dq, dk, dv);
	case_forget(scratch);
	case_end(&c);
	attention_free(&a);
}

static void test_small(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(120); seed++)
		attention_try(seed, 24);
}

/* Several blocks of queries and keys, borders inside them. */
static void test_blocks(void **state)
{
	(void)state;
	for (uint64_t seed = 1000; seed < 1000 + case_count(24); seed++)
		attention_try(seed, 330);
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

		case_begin(&c, "reference", seed);
		attention_random(&c, &a, 8);
		attention_alloc(&a);
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
	        cmocka_unit_test(test_range),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
