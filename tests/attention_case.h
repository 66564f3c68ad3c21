/* Cases of attention: shapes, documents, and the layout of q, k and v in memory. */
#ifndef FERRY_TESTS_ATTENTION_CASE_H
#define FERRY_TESTS_ATTENTION_CASE_H

#include "tests/attention_reference.h"
#include "tests/ops_check.h"
#include "tests/sparing.h"

/* The layout of q, k and v in memory. */
enum layout {
	LAYOUT_APART,       /* three tensors */
	LAYOUT_FUSED,       /* in one row: q's heads, k's, v's */
	LAYOUT_INTERLEAVED, /* in one row: q, k and v of each head in turn (heads == kv_heads) */
};

/* One case. `lengths` of the documents end with 0; the last document takes the remaining tokens. */
struct setting {
	int64_t tokens, heads, kv_heads, head_dim, window;
	enum dtype dtype;
	enum layout layout;
	int64_t lengths[6];
	double magnitude; /* of q and k; 0: 1 */
	int64_t gap;      /* elements between rows */
	int64_t misfit;   /* offset in elements of all tensors from an alignment of 16 bytes */
	enum attention_mask mask;
	double score_cap;
	int has_sink, has_bias;
};

static inline void document_set(struct ops_case *c, struct attention *a, int64_t at, int64_t length)
{
	a->documents++;
	a->document_tokens = length > a->document_tokens ? length : a->document_tokens;
	for (int64_t i = at; i < at + length; i++) {
		tensor_set(&c->tensors[0], i, (double)at);
		tensor_set(&c->tensors[1], i, (double)(at + length));
	}
}

/* Makes tensors 0 (start) and 1 (end) of the case: int32 [tokens]. */
static inline void documents_alloc(struct ops_case *c, struct attention *a)
{
	const struct tensor *start = case_tensor(c, a->tokens, DTYPE_I32, 1);

	case_tensor(c, a->tokens, DTYPE_I32, 1);
	a->doc_start = (const int32_t *)(start->block + start->offset);
	a->doc_end = (const int32_t *)(c->tensors[1].block + c->tensors[1].offset);
}

/* A random shape, at most `high` tokens. */
static inline void attention_random(struct ops_case *c, struct attention *a, int *has_sink, int64_t high)
{
	int64_t group = case_int(c, 1, 3), at = 0;

	*has_sink = 0;
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
	if (case_int(c, 0, 1)) { /* otherwise plain causal, which has its own kernels */
		a->mask = case_int(c, 0, 1) ? MASK_BIDIRECTIONAL : MASK_CAUSAL;
		a->score_cap = case_int(c, 0, 1) ? 0.3 + 3 * fabs(case_uniform(c)) : 0;
		*has_sink = (int)case_int(c, 0, 1);
	}
	documents_alloc(c, a);
	while (at < a->tokens) {
		int64_t length =
		        case_int(c, 0, 1) ? case_size(c, a->tokens - at) : case_int(c, 1, a->tokens - at);

		document_set(c, a, at, length);
		at += length;
	}
}

static inline void attention_set(struct ops_case *c, struct attention *a, const struct setting *s)
{
	int64_t at = 0, d = s->head_dim, columns = s->heads + 2 * s->kv_heads;

	*a = (struct attention){.tokens = s->tokens,
	        .heads = s->heads,
	        .kv_heads = s->kv_heads,
	        .head_dim = d,
	        .window = s->window,
	        .scale = 1 / sqrt((double)d),
	        .score_cap = s->score_cap,
	        .mask = s->mask,
	        .q_head_stride = s->layout == LAYOUT_INTERLEAVED ? 3 * d : d,
	        .kv_head_stride = s->layout == LAYOUT_INTERLEAVED ? 3 * d : d,
	        .qkv_stride = (s->layout == LAYOUT_APART ? s->heads : columns) * d + s->gap,
	        .out_stride = s->heads * d + s->gap};
	documents_alloc(c, a);
	for (int n = 0; at < a->tokens; n++) {
		int64_t length = n < 6 && s->lengths[n] ? s->lengths[n] : a->tokens - at;

		document_set(c, a, at, length);
		at += length;
	}
}

static inline double *take(int64_t count)
{
	double *x = mem_alloc((size_t)count, sizeof *x);

	assert_non_null(x);
	return x;
}

static inline void attention_alloc(struct attention *a, int has_sink, int has_bias)
{
	int64_t qkv = a->tokens * a->qkv_stride, out = a->tokens * a->out_stride;

	a->q = take(qkv), a->k = take(qkv), a->v = take(qkv), a->dq = take(qkv), a->dk = take(qkv),
	a->dv = take(qkv);
	a->out = take(out), a->dout = take(out), a->lse = take(a->tokens * a->heads);
	if (has_sink)
		a->sink = take(a->heads), a->dsink = take(a->heads);
	if (has_bias)
		a->bias = take(2 * a->heads * a->tokens), a->dbias = take(2 * a->heads * a->tokens);
	a->p = take(a->heads * a->tokens * a->tokens), a->ds = take(a->heads * a->tokens * a->tokens);
}

static inline void attention_free(struct attention *a)
{
	double *all[] = {a->q, a->k, a->v, a->dq, a->dk, a->dv, a->out, a->dout, a->lse, a->p, a->ds, a->sink,
	        a->dsink, a->bias, a->dbias};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		mem_free(all[i]);
}

/* An operand within a tensor. */
struct view {
	struct tensor *tensor;
	int64_t base;
};

struct views {
	struct view q, k, v;
};

static inline dev_addr view_addr(const struct view *v)
{
	return dev_at(tensor_addr(v->tensor), v->base * dtype_bytes(v->tensor->dtype));
}

static inline void to_double(double *x, const struct view *v)
{
	for (int64_t i = v->base; i < v->tensor->count; i++)
		x[i - v->base] = tensor_get(v->tensor, i);
}

/* q, k, v or their gradients. */
static inline struct views views_alloc(
        struct ops_case *c, const struct attention *a, enum dtype dtype, enum layout layout)
{
	int64_t d = a->head_dim, last = (a->tokens - 1) * a->qkv_stride;
	struct views views;

	if (layout == LAYOUT_APART) {
		views.q = (struct view){
		        case_tensor(c, last + (a->heads - 1) * a->q_head_stride + d, dtype, 1), 0};
		views.k = (struct view){
		        case_tensor(c, last + (a->kv_heads - 1) * a->kv_head_stride + d, dtype, 1), 0};
		views.v = (struct view){case_tensor(c, views.k.tensor->count, dtype, 1), 0};
		return views;
	}
	views.q = (struct view){case_tensor(c, last + a->qkv_stride, dtype, 1), 0};
	views.k = (struct view){views.q.tensor, layout == LAYOUT_FUSED ? a->heads * d : d};
	views.v =
	        (struct view){views.q.tensor, layout == LAYOUT_FUSED ? (a->heads + a->kv_heads) * d : 2 * d};
	return views;
}

/* The tests take every n-th random seed. n is 3 under ThreadSanitizer. On the emulator, where a product of
 * tiles takes milliseconds, it is 12 times FERRY_TEST_SPARING. */
static inline uint64_t seed_step(void)
{
#ifdef FERRY_TEST_CUDA
	return simt_set_order ? 12 * (uint64_t)sparing(1) : 1;
#elif defined(__SANITIZE_THREAD__)
	return 3;
#else
	return 1;
#endif
}

#endif
