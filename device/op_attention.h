/* Attention, forward and backward (device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_ATTENTION_H
#define FERRY_DEVICE_OP_ATTENTION_H

#include "base/dtype.h"
#include "device/addr.h"
#include "device/attention_mask.h"
#include "device/relative_rule.h"

#define OP_ATTENTION_LIST(ROW)                                                                               \
	ROW(ATTENTION, attention, attention)                                                                 \
	ROW(ATTENTION_GRAD, attention_grad, attention_grad)                                                  \
	ROW(ATTENTION_CACHED, attention_cached, attention_cached)                                            \
	ROW(RELATIVE, relative, relative)                                                                    \
	ROW(RELATIVE_GRAD, relative_grad, relative_grad)

/* Attention within the documents of a micro-batch. It never forms a tokens x tokens matrix.
 *
 * Head h of token t lies at q + t * qkv_stride + h * q_head_stride. For k and v, head g lies at + t *
 * qkv_stride + g * kv_head_stride. heads is a multiple of kv_heads; query head h uses kv head h / (heads /
 * kv_heads). out is [tokens, heads * head_dim] with out_stride. Softmax is in fp32. doc_start and doc_end,
 * int32 [tokens]: the first token of the token's document, and one past its last. `documents` is the number
 * of documents, document_tokens the length of the longest (0: unknown). Kernel choice and cost may depend on
 * them.
 *
 * Token i sees these tokens j of its own document (doc_start[i] <= j < doc_end[i]):
 *
 *     MASK_CAUSAL         j <= i, and with window > 0 also i - j < window
 *     MASK_BIDIRECTIONAL  any j, and with window > 0 only |i - j| < window
 *
 * The score of q and k is s = scale q.k. With score_cap > 0 it is score_cap tanh(s / score_cap) (Gemma 2).
 * sink, optional, in `dtype` [heads], is one more score of each head without a value. So the weights of
 * tokens sum to less than 1 (gpt-oss). bias, optional, in `dtype` [heads, 2 tokens], is added to scores by
 * distance: to that of query i and key j, element tokens + j - i of the head. It excludes score_cap. lse: F32
 * [tokens, heads]: log of the sum of exp of all scores, including the sink.
 *
 * Backward writes dq, dk, dv in the layout of q, k, v. It adds to dsink, F32 [heads], which is present if
 * sink is, and to dbias, F32 [heads, 2 tokens], unless that is absent. scratch: F32
 * [attention_scratch_count(...)], and with dbias attention_bias_scratch_count(...) more. */
struct op_attention {
	dev_addr out, lse, q, k, v, doc_start, doc_end, sink, bias;
	int64_t tokens, documents, document_tokens, heads, kv_heads, head_dim, window;
	int64_t qkv_stride, q_head_stride, kv_head_stride, out_stride;
	double scale, score_cap;
	enum attention_mask mask;
	enum dtype dtype;
};
struct op_attention_grad {
	dev_addr dq, dk, dv, dsink, dbias, dout, out, lse, q, k, v, doc_start, doc_end, sink, bias, scratch;
	int64_t tokens, documents, document_tokens, heads, kv_heads, head_dim, window;
	int64_t qkv_stride, q_head_stride, kv_head_stride, out_stride;
	double scale, score_cap;
	enum attention_mask mask;
	enum dtype dtype;
};
int64_t attention_scratch_count(int64_t tokens, int64_t heads, int64_t head_dim);

/* Tiles of scores share a diagonal if they lie at the same distance. Gradients of the bias are first summed
 * tile by tile, in ATTENTION_BIAS_PARTS runs of queries. */
enum { ATTENTION_BIAS_SIDE = 64, ATTENTION_BIAS_PARTS = 4 };
int64_t attention_bias_scratch_count(int64_t tokens, int64_t heads);

/* The bias of each distance, from a table in `dtype` [table_rows, heads]: out[h, tokens + d] is the rule's
 * row of d = j - i, of head h. out[h, 0], of no distance, is 0. Backward adds to dtable, F32, from dout, F32.
 * Rows beyond those of the rule are not read. */
struct op_relative {
	dev_addr out, table;
	int64_t tokens, heads, table_rows;
	struct relative_rule rule;
	enum dtype dtype;
};
struct op_relative_grad {
	dev_addr dtable, dout;
	int64_t tokens, heads, table_rows;
	struct relative_rule rule;
};

/* Attention of new tokens over a cache of keys and values, for generation.
 *
 * cache, in `dtype` [cache_rows, 2, kv_heads, head_dim]: a row holds the keys of a token, then its values.
 * The rows of a text follow each other. doc_start[t] is the row of the text's first token, doc_end[t] one
 * past the token's own row, doc_start[t] < doc_end[t] <= cache_rows. No two tokens have the same row. The op
 * first writes k and v of all new tokens into their rows. Each new token then sees the rows from doc_start
 * to its own; with window > 0 only the last `window` of them. Older rows keep the values of earlier calls.
 * All else is as in op_attention with MASK_CAUSAL and without bias.
 *
 * With kept_rows > 0 the cache keeps only the last kept_rows rows of each text. Text n has the row numbers n
 * text_rows (its doc_start) to (n + 1) text_rows - 1, and its row j lies at n kept_rows + j % kept_rows.
 * window - 1 plus the new tokens of a text must not exceed kept_rows.
 */
struct op_attention_cached {
	dev_addr out, cache, q, k, v, doc_start, doc_end, sink;
	int64_t tokens, cache_rows, text_rows, kept_rows, heads, kv_heads, head_dim, window;
	int64_t qkv_stride, q_head_stride, kv_head_stride, out_stride;
	double scale, score_cap;
	enum dtype dtype;
};

/* Elements of a row of the cache. */
static inline int64_t attention_cache_row_count(int64_t kv_heads, int64_t head_dim)
{
	return 2 * kv_heads * head_dim;
}

#endif
