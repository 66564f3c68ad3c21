/* Makes the benchmarked ops of attention. */
#include "bench/kernel_attention.h"

/* What forward and backward take alike. */
#define SHAPE                                                                                                \
	.q = qkv, .k = k, .v = v, .doc_start = index->doc_start, .doc_end = index->doc_end,                  \
	.tokens = s->tokens, .documents = documents, .document_tokens = s->document_tokens,                  \
	.heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->head_dim, .window = window,               \
	.qkv_stride = stride, .q_head_stride = s->head_dim, .kv_head_stride = s->head_dim,                   \
	.out_stride = width, .bias = bias, .mask = mask, .scale = attention_scale(s), .dtype = dtype

/* Variants: a window of a quarter of a document; a bias by distance, and both sides. */
enum { WINDOW = 1, BIAS };
static const struct relative_rule rule = {32, 128, 1};

static int64_t bias_count(const struct bench_scale *s)
{
	return 2 * s->tokens * s->heads;
}

static double attention_scale(const struct bench_scale *s)
{
	return s->head_dim >= 128 ? 0.08838834764831845 : s->head_dim >= 64 ? 0.125 : 0.17677669529663687;
}

static void make_attention(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype, int variant)
{
	int64_t stride = (s->heads + 2 * s->kv_heads) * s->head_dim, width = s->heads * s->head_dim,
	        documents = (s->tokens + s->document_tokens - 1) / s->document_tokens,
	        window = variant == WINDOW ? s->document_tokens / 4 : 0, e = dtype_bytes(dtype);
	dev_addr qkv = kernel_take(p, s->tokens * stride, dtype),
	         out = kernel_take(p, s->tokens * width, dtype),
	         lse = kernel_take(p, s->tokens * s->heads, DTYPE_F32), k = dev_at(qkv, width * e),
	         v = dev_at(k, s->kv_heads * s->head_dim * e), dqkv,
	         bias = variant == BIAS ? kernel_take(p, bias_count(s), dtype) : DEV_NONE;
	enum attention_mask mask = variant == BIAS ? MASK_BIDIRECTIONAL : MASK_CAUSAL;

	if (op->kind == OP_ATTENTION) {
		op->attention = (struct op_attention){.out = out, .lse = lse, SHAPE};
		return;
	}
	dqkv = kernel_take(p, s->tokens * stride, dtype);
	op->attention_grad = (struct op_attention_grad){.dq = dqkv,
	        .dk = dev_at(dqkv, width * e),
	        .dv = dev_at(dqkv, (width + s->kv_heads * s->head_dim) * e),
	        .dout = kernel_take(p, s->tokens * width, dtype),
	        .out = out,
	        .lse = lse,
	        .dbias = variant == BIAS ? kernel_take(p, bias_count(s), DTYPE_F32) : DEV_NONE,
	        .scratch = kernel_take(p,
	                attention_scratch_count(s->tokens, s->heads, s->head_dim) +
	                        attention_bias_scratch_count(s->tokens, s->heads),
	                DTYPE_F32),
	        SHAPE};
}

/* The next token of one text with a document's length. */
static void make_attention_cached(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype)
{
	int64_t stride = (s->heads + 2 * s->kv_heads) * s->head_dim, width = s->heads * s->head_dim,
	        e = dtype_bytes(dtype);
	int64_t row_count = attention_cache_row_count(s->kv_heads, s->head_dim);
	int64_t rows = s->document_tokens < s->tokens ? s->document_tokens : s->tokens;
	dev_addr qkv = kernel_take(p, stride, dtype), k = dev_at(qkv, width * e);

	op->attention_cached = (struct op_attention_cached){.out = kernel_take(p, width, dtype),
	        .cache = kernel_take(p, rows * row_count, dtype),
	        .q = qkv,
	        .k = k,
	        .v = dev_at(k, s->kv_heads * s->head_dim * e),
	        .doc_start = index->doc_start,
	        .doc_end = index->doc_end,
	        .tokens = 1,
	        .cache_rows = rows,
	        .heads = s->heads,
	        .kv_heads = s->kv_heads,
	        .head_dim = s->head_dim,
	        .qkv_stride = stride,
	        .q_head_stride = s->head_dim,
	        .kv_head_stride = s->head_dim,
	        .out_stride = width,
	        .scale = attention_scale(s),
	        .dtype = dtype};
}

static void make_relative(
        struct op *op, struct kernel_place *p, const struct bench_scale *s, enum dtype dtype)
{
	if (op->kind == OP_RELATIVE)
		op->relative = (struct op_relative){kernel_take(p, bias_count(s), dtype),
		        kernel_take(p, rule.rows * s->heads, dtype), s->tokens, s->heads, rule.rows, rule,
		        dtype};
	else
		op->relative_grad = (struct op_relative_grad){kernel_take(p, rule.rows * s->heads, DTYPE_F32),
		        kernel_take(p, bias_count(s), DTYPE_F32), s->tokens, s->heads, rule.rows, rule};
}

void kernel_make_attention(struct op *op, struct kernel_place *p, const struct bench_scale *s,
        const struct kernel_index *index, enum dtype dtype, int variant)
{
	if (op->kind == OP_RELATIVE || op->kind == OP_RELATIVE_GRAD)
		make_relative(op, p, s, dtype);
	else if (op->kind == OP_ATTENTION_CACHED)
		make_attention_cached(op, p, s, index, dtype);
	else
		make_attention(op, p, s, index, dtype, variant);
}
