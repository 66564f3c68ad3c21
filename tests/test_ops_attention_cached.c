/* links: host_cpu */
/* also: tsan cuda */
/* Attention over a cache of keys and values: texts in pieces against the whole text in double. */
#include "tests/attention_case.h"

#include "base/size.h"

enum { TEXTS_MAX = 4 };

/* Texts, and the rows of the cache that each has. */
struct texts {
	int64_t count, length[TEXTS_MAX], first_row[TEXTS_MAX], first_token[TEXTS_MAX];
	int64_t tokens, cache_rows, text_rows, kept_rows; /* kept_rows 0: all */
};

/* The row of token t of text i. */
static int64_t cache_row(const struct texts *x, int64_t i, int64_t t)
{
	return x->kept_rows ? i * x->kept_rows + t % x->kept_rows : x->first_row[i] + t;
}

static void texts_draw(struct ops_case *c, struct texts *x, int64_t high)
{
	int64_t row = case_int(c, 0, 3);

	*x = (struct texts){.count = case_int(c, 1, TEXTS_MAX)};
	for (int64_t i = 0; i < x->count; i++) {
		x->length[i] = case_size(c, high);
		x->first_token[i] = x->tokens;
		x->first_row[i] = row;
		x->tokens += x->length[i];
		row += x->length[i] + case_int(c, 0, 3);
	}
	x->cache_rows = row;
}

/* The whole: all texts as documents of one batch, q, k and v apart. */
static void whole_alloc(struct ops_case *c, struct attention *a, const struct texts *x, int32_t *bounds[2])
{
	int64_t group = case_int(c, 1, 3), d = case_int(c, 0, 2) ? case_size(c, 40) : case_size(c, 140);

	*a = (struct attention){.tokens = x->tokens,
	        .kv_heads = case_int(c, 1, 2),
	        .head_dim = d,
	        .scale = 1 / sqrt((double)d),
	        .window = case_int(c, 0, 1) ? case_size(c, 60) : 0,
	        .score_cap = case_int(c, 0, 3) ? 0 : 1.5};
	a->heads = a->kv_heads * group;
	a->q_head_stride = d + case_int(c, 0, 2);
	a->kv_head_stride = d + case_int(c, 0, 2);
	a->qkv_stride = a->heads * (d + 2) + case_int(c, 0, 3);
	a->out_stride = a->heads * d + case_int(c, 0, 3);
	for (int i = 0; i < 2; i++) {
		bounds[i] = mem_alloc((size_t)x->tokens, sizeof(*bounds[i]));
		assert_non_null(bounds[i]);
	}
	for (int64_t i = 0; i < x->count; i++)
		for (int64_t t = x->first_token[i]; t < x->first_token[i] + x->length[i]; t++) {
			bounds[0][t] = (int32_t)x->first_token[i];
			bounds[1][t] = (int32_t)(x->first_token[i] + x->length[i]);
		}
	a->doc_start = bounds[0];
	a->doc_end = bounds[1];
	a->q = take(a->tokens * a->qkv_stride);
	a->k = take(a->tokens * a->qkv_stride);
	a->v = take(a->tokens * a->qkv_stride);
	a->out = take(a->tokens * a->out_stride);
	a->lse = take(a->tokens * a->heads);
	a->p = take(a->heads * a->tokens * a->tokens);
	if (!case_int(c, 0, 3)) {
		a->sink = take(a->heads);
		for (int64_t h = 0; h < a->heads; h++)
			a->sink[h] = round(case_normal(c) * 16) / 16;
	}
}

/* Values as on the device: rounded to the dtype. */
static void fill(struct ops_case *c, double *x, int64_t count, enum dtype dtype)
{
	for (int64_t i = 0; i < count; i++) {
		float f = (float)case_normal(c);

		x[i] = dtype == DTYPE_BF16 ? (double)bf16_to_f32(bf16_from_f32(f)) : (double)f;
	}
}

/* The input of a call: the texts' tokens from[i] up to to[i]. */
struct piece {
	int64_t from[TEXTS_MAX], to[TEXTS_MAX], tokens;
};

struct call {
	struct tensor *q, *k, *v, *out, *start, *end, *sink;
};

static void call_fill(struct call *call, struct ops_case *c, const struct attention *a, const struct texts *x,
        const struct piece *p, enum dtype dtype)
{
	int64_t at = 0, qkv = p->tokens * a->qkv_stride;

	call->q = case_tensor(c, qkv, dtype, 1);
	call->k = case_tensor(c, qkv, dtype, 1);
	call->v = case_tensor(c, qkv, dtype, 1);
	call->out = case_tensor(c, p->tokens * a->out_stride, dtype, 1);
	call->start = case_tensor(c, p->tokens, DTYPE_I32, 1);
	call->end = case_tensor(c, p->tokens, DTYPE_I32, 1);
	call->sink = a->sink ? case_tensor(c, a->heads, dtype, 1) : NULL;
	for (int64_t h = 0; a->sink && h < a->heads; h++)
		tensor_set(call->sink, h, a->sink[h]);
	for (int64_t i = 0; i < x->count; i++)
		for (int64_t t = p->from[i]; t < p->to[i]; t++, at++) {
			int64_t from = (x->first_token[i] + t) * a->qkv_stride;

			for (int64_t e = 0; e < a->qkv_stride; e++) {
				tensor_set(call->q, at * a->qkv_stride + e, a->q[from + e]);
				tensor_set(call->k, at * a->qkv_stride + e, a->k[from + e]);
				tensor_set(call->v, at * a->qkv_stride + e, a->v[from + e]);
			}
			tensor_set(call->start, at, (double)x->first_row[i]);
			tensor_set(call->end, at, (double)(x->first_row[i] + t + 1));
		}
}

/* out is that of the whole, and the rows of the cache are k and v as they came. */
static void call_check(const struct call *call, struct ops_case *c, struct tensor *cache,
        const struct attention *a, const struct texts *x, const struct piece *p, enum dtype dtype)
{
	int64_t at = 0, d = a->head_dim, row_count = attention_cache_row_count(a->kv_heads, d);
	double bound = (dtype == DTYPE_BF16 ? 4 * EPS_BF16 : 0) + 40 * EPS_F32 * (double)(d + x->tokens);

	for (int64_t i = 0; i < x->count; i++)
		for (int64_t t = p->from[i]; t < p->to[i]; t++, at++) {
			int64_t token = x->first_token[i] + t, row = cache_row(x, i, t) * row_count;

			for (int64_t e = 0; e < a->heads * d; e++)
				case_check(c, call->out, at * a->out_stride + e,
				        a->out[token * a->out_stride + e], bound, "out");
			for (int64_t g = 0; g < a->kv_heads; g++)
				for (int64_t e = 0; e < d; e++) {
					int64_t from = token * a->qkv_stride + g * a->kv_head_stride + e;

					case_check(c, cache, row + g * d + e, a->k[from], 0, "key");
					case_check(c, cache, row + row_count / 2 + g * d + e, a->v[from], 0,
					        "value");
				}
		}
}

static struct op cached_op(const struct call *call, struct tensor *cache, const struct attention *a,
        const struct texts *x, const struct piece *p, enum dtype dtype)
{
	return (struct op){.kind = OP_ATTENTION_CACHED,
	        .attention_cached = {.out = tensor_addr(call->out),
	                .cache = tensor_addr(cache),
	                .q = tensor_addr(call->q),
	                .k = tensor_addr(call->k),
	                .v = tensor_addr(call->v),
	                .doc_start = tensor_addr(call->start),
	                .doc_end = tensor_addr(call->end),
	                .sink = call->sink ? tensor_addr(call->sink) : DEV_NONE,
	                .tokens = p->tokens,
	                .cache_rows = x->cache_rows,
	                .text_rows = x->text_rows,
	                .kept_rows = x->kept_rows,
	                .heads = a->heads,
	                .kv_heads = a->kv_heads,
	                .head_dim = a->head_dim,
	                .window = a->window,
	                .qkv_stride = a->qkv_stride,
	                .q_head_stride = a->q_head_stride,
	                .kv_head_stride = a->kv_head_stride,
	                .out_stride = a->out_stride,
	                .scale = a->scale,
	                .score_cap = a->score_cap,
	                .dtype = dtype}};
}

/* One piece of the texts, as a case of its own: its cache has the earlier pieces. */
static void piece_try(const struct attention *a, const struct texts *x, const struct piece *p,
        enum dtype dtype, uint64_t seed)
{
	int64_t row_count = attention_cache_row_count(a->kv_heads, a->head_dim), d = a->head_dim;
	struct ops_case c;
	struct tensor *cache;
	struct call call;
	struct op op;

	case_begin(&c, "cached", seed);
	cache = case_tensor(&c, x->cache_rows * row_count, dtype, 1);
	for (int64_t i = 0; i < x->count; i++)
		for (int64_t t = 0; t < p->from[i]; t++)
			for (int64_t e = 0; e < row_count / 2; e++) {
				int64_t from = (x->first_token[i] + t) * a->qkv_stride +
				               e / d * a->kv_head_stride + e % d;

				tensor_set(cache, cache_row(x, i, t) * row_count + e, a->k[from]);
				tensor_set(cache, cache_row(x, i, t) * row_count + row_count / 2 + e,
				        a->v[from]);
			}
	call_fill(&call, &c, a, x, p, dtype);
	op = cached_op(&call, cache, a, x, p, dtype);
	case_run(&c, &op);
	call_check(&call, &c, cache, a, x, p, dtype);
	case_end(&c);
}

/* Half of those with a window keep the rows that a piece may see, at least. */
static struct texts texts_kept(
        const struct texts *x, const struct attention *a, const struct piece *p, struct ops_case *c)
{
	struct texts kept = *x;
	int64_t most = 0;

	if (!a->window || case_int(c, 0, 1))
		return kept;
	for (int64_t i = 0; i < x->count; i++) {
		most = max_i64(most, p->to[i] - p->from[i]);
		kept.text_rows = max_i64(kept.text_rows, x->length[i]);
	}
	kept.kept_rows = a->window - 1 + most + case_int(c, 0, 3);
	kept.text_rows = max_i64(kept.text_rows, kept.kept_rows) + case_int(c, 0, 3);
	for (int64_t i = 0; i < x->count; i++)
		kept.first_row[i] = i * kept.text_rows;
	kept.cache_rows = x->count * kept.kept_rows;
	return kept;
}

/* Runs the start of each text, then one token of each, then the rest. */
static void texts_try(uint64_t seed, int64_t high)
{
	struct piece p = {0};
	struct texts x;
	struct attention a;
	struct ops_case c = {.seed = seed};
	enum dtype dtype = case_int(&c, 0, 1) ? DTYPE_BF16 : DTYPE_F32;
	int32_t *bounds[2];

	texts_draw(&c, &x, high);
	whole_alloc(&c, &a, &x, bounds);
	fill(&c, a.q, a.tokens * a.qkv_stride, dtype);
	fill(&c, a.k, a.tokens * a.qkv_stride, dtype);
	fill(&c, a.v, a.tokens * a.qkv_stride, dtype);
	reference_forward(&a);
	for (int round = 0; round < 3; round++) {
		p.tokens = 0;
		for (int64_t i = 0; i < x.count; i++) {
			int64_t left = x.length[i] - p.to[i];

			p.from[i] = p.to[i];
			p.to[i] += round == 2 ? left : round == 1 ? left > 0 : case_int(&c, 0, left);
			p.tokens += p.to[i] - p.from[i];
		}
		if (p.tokens) {
			struct texts kept = texts_kept(&x, &a, &p, &c);

			piece_try(&a, &kept, &p, dtype, seed * 3 + (uint64_t)round);
		}
	}
	mem_free(bounds[0]);
	mem_free(bounds[1]);
	attention_free(&a);
}

static void test_small(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < case_count(90); seed += seed_step())
		texts_try(seed, 20);
}

/* More keys than a block of them, more queries than a block of those. */
static void test_blocks(void **state)
{
	(void)state;
	for (uint64_t seed = 1000; seed < 1000 + case_count(24); seed += seed_step())
		texts_try(seed, seed_step() > 1 ? 150 : 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_small),
	        cmocka_unit_test(test_blocks),
	};

	return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
