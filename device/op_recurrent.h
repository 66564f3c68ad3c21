/* Layers with a recurrent state: a short convolution, the gated delta rule, a norm with a gate (device/op.h
 * has the rules for all ops).
 *
 * Neither the convolution nor the state crosses the border of a document: doc_start, int32 [tokens], is the
 * first token of the token's document. A document is cut into chunks from its own start, so that a document
 * gives the same bits alone and among others.
 */
#ifndef FERRY_DEVICE_OP_RECURRENT_H
#define FERRY_DEVICE_OP_RECURRENT_H

#include "base/dtype.h"
#include "device/addr.h"

#define OP_RECURRENT_LIST(ROW)                                                                               \
	ROW(CONV, conv, conv)                                                                                \
	ROW(CONV_GRAD, conv_grad, conv_grad)                                                                 \
	ROW(CONV_CACHED, conv_cached, conv_cached)                                                           \
	ROW(DELTA, delta, delta)                                                                             \
	ROW(DELTA_GRAD, delta_grad, delta_grad)                                                              \
	ROW(DELTA_CACHED, delta_cached, delta_cached)                                                        \
	ROW(GATED_NORM, gated_norm, gated_norm)                                                              \
	ROW(GATED_NORM_GRAD, gated_norm_grad, gated_norm_grad)

enum conv_act { CONV_PLAIN, CONV_SILU, CONV_ACT_COUNT };
enum { CONV_TAPS_MAX = 8 };

/* A convolution over the tokens, one filter for each column:
 *
 *     y[t][c] = act(bias[c] + sum of weight[c][j] x[t - (taps - 1) + j][c], 0 <= j < taps)
 *
 * Tokens before the document count as 0. weight is [cols, taps], bias [cols] and optional. Rows of x and y
 * have strides. Sums are in fp32 and rounded once, after the activation.
 *
 * Backward writes dx in the layout of x, and adds to dweight, F32 [cols, taps], and dbias, F32 [cols], which
 * is present if bias is. dx must not be dy or x. scratch: F32 [conv_scratch_count(tokens, cols, taps)]. */
struct op_conv {
	dev_addr y, x, weight, bias, doc_start;
	int64_t tokens, cols, taps, x_stride, y_stride;
	enum conv_act act;
	enum dtype dtype;
};
struct op_conv_grad {
	dev_addr dx, dweight, dbias, dy, x, weight, bias, doc_start, scratch;
	int64_t tokens, cols, taps, x_stride, y_stride;
	enum conv_act act;
	enum dtype dtype;
};
int64_t conv_scratch_count(int64_t tokens, int64_t cols, int64_t taps);

/* The same for new tokens of texts, for generation. window, in `dtype` [texts, taps - 1, cols], holds the
 * last inputs of each text; the op moves the new ones in. doc_start and doc_end are as in
 * op_attention_cached: token t belongs to text doc_start[t] / text_rows and is its token doc_end[t] -
 * doc_start[t] - 1. The new tokens of a text follow each other. Before a text's token 0 its window counts as
 * zeros. */
struct op_conv_cached {
	dev_addr y, window, x, weight, bias, doc_start, doc_end;
	int64_t tokens, texts, text_rows, cols, taps, x_stride, y_stride;
	enum conv_act act;
	enum dtype dtype;
};

enum { DELTA_CHUNK = 64, DELTA_TILE = 32 }; /* tokens; columns of a state that a GPU's kernels take at once */

enum delta_rule { DELTA_GATED, DELTA_SCAN, DELTA_RULE_COUNT };

/* The gated delta rule (Yang et al. 2024, "Gated Delta Networks"; chunks: Yang et al. 2024, "Parallelizing
 * Linear Transformers with the Delta Rule").
 *
 * Token t has key_heads heads of q and k with key_dim numbers at q + t * qkv_stride + h * key_dim (k alike),
 * and value_heads heads of v with value_dim numbers at v + t * qkv_stride + h * value_dim. value_heads is a
 * multiple r of key_heads; value head h uses key head h / r. a and b, [tokens, value_heads] with gate_stride,
 * decay and dt_bias, [value_heads], give the gates. With ^ for q and k over sqrt(sum of squares + epsilon):
 *
 *     beta = sigmoid(b), rounded to dtype
 *     g = -exp(decay) softplus(a + dt_bias)
 *     S = 0 [key_dim, value_dim] before a document; for each token
 *     S = exp(g) S
 *     S += k^ x beta (v - k^ S)
 *     out = scale q^ S
 *
 * With rule DELTA_SCAN it is Mamba-2's scan (Dao and Gu 2024, "Transformers are SSMs"): q, k, v are C, B, x
 * as they are, b is absent, skip is [value_heads], and low <= high limit the step (high may be infinite):
 *
 *     step = softplus(a + dt_bias) clamped to [low, high]; the sum, the result and the limits rounded to
 *         dtype first
 *     g = -exp(decay) step
 *     S = exp(g) S + k x step v
 *     out = scale q S + skip v
 *
 * All of it is in fp32; out, [tokens, value_heads * value_dim], is rounded to dtype.
 *
 * Backward writes dq, dk, dv in the layout of q, k, v, da and db in that of a and b, and adds to ddecay,
 * ddt_bias and dskip, F32 [value_heads]. scratch: F32 [delta_scratch_count(...)]. */
#define DELTA_SHAPE                                                                                          \
	int64_t tokens, key_heads, value_heads, key_dim, value_dim;                                          \
	int64_t qkv_stride, gate_stride, out_stride;                                                         \
	double scale, epsilon, low, high;                                                                    \
	enum delta_rule rule;                                                                                \
	enum dtype dtype
struct op_delta {
	dev_addr out, q, k, v, a, b, decay, dt_bias, skip, doc_start;
	DELTA_SHAPE;
};
struct op_delta_grad {
	dev_addr dq, dk, dv, da, db, ddecay, ddt_bias, dskip, dout, q, k, v, a, b, decay, dt_bias, skip,
	        doc_start, scratch;
	DELTA_SHAPE;
};

/* The state before each chunk of a value head but the first of a document, and what the device keeps of its
 * tokens: dq and dk (host); rows of delta_row_count floats and three sums (GPU, by chunks); or, if that is
 * more, dq, dk and DELTA_TILE columns (GPU, token by token). */
int64_t delta_scratch_count(int64_t tokens, int64_t value_heads, int64_t key_dim, int64_t value_dim);

enum { DELTA_KEYS_AT_ONCE = 128 }; /* numbers of a key that a GPU's chunks take at once */

/* Floats for each token of a GPU's chunks: dq and dk; before that V', its gradient and the gradient of the
 * state after the chunk. Keys wider than DELTA_KEYS_AT_ONCE need both at once. A multiple of 4. */
static inline int64_t delta_row_count(int64_t key_dim, int64_t value_dim)
{
	int64_t rows = 2 * key_dim, before = 2 * value_dim + (key_dim * value_dim + 63) / 64;
	int64_t count = rows > before ? rows : before;

	before = (before + 3) / 4 * 4;
	return key_dim > DELTA_KEYS_AT_ONCE ? rows + before : (count + 3) / 4 * 4;
}

/* Room for such states: fewer than tokens / DELTA_CHUNK, however many documents there are. */
static inline int64_t delta_states(int64_t tokens)
{
	return tokens / DELTA_CHUNK;
}

/* The same for new tokens of texts, token by token. state, F32 [texts, value_heads, key_dim, value_dim], is
 * the state of each text after its last token. Texts as in op_conv_cached. A state cannot go back to an
 * earlier token. */
struct op_delta_cached {
	dev_addr out, state, q, k, v, a, b, decay, dt_bias, skip, doc_start, doc_end;
	int64_t texts, text_rows;
	DELTA_SHAPE;
};

enum gate_order { GATE_AFTER_NORM, GATE_BEFORE_NORM, GATE_ORDER_COUNT };

/* y = norm(x) weight silu(gate), or with GATE_BEFORE_NORM norm(x silu(gate)) weight (Mamba-2), where norm is
 * that of op_norm's rmsnorm. Row r, group g of x starts at x + r * x_stride + g * cols; gate and y have
 * strides alike. weight is [cols], or [groups * cols] with weight_groups = groups. rstd: F32 [rows * groups].
 *
 * Backward writes dx and dgate (dgate may be gate, dx may be x or dy) and adds to dweight, F32. scratch: F32
 * [gated_norm_scratch_count(rows, groups, cols)]. */
struct op_gated_norm {
	dev_addr y, x, gate, weight, rstd;
	int64_t rows, groups, cols, weight_groups, x_stride, gate_stride, y_stride;
	double epsilon;
	enum gate_order order;
	enum dtype dtype;
};
struct op_gated_norm_grad {
	dev_addr dx, dgate, dweight, dy, x, gate, weight, rstd, scratch;
	int64_t rows, groups, cols, weight_groups, x_stride, gate_stride, y_stride;
	enum gate_order order;
	enum dtype dtype;
};
int64_t gated_norm_scratch_count(int64_t rows, int64_t groups, int64_t cols);

#endif
