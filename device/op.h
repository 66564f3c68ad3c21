/* The ops: what a device computes, as plain data.
 *
 * An op is a kind and its arguments; stream_op (device/device.h) queues it. The same description is what a
 * backend executes, what op_check validates, what op_access_list lists as byte ranges, and what op_cost_of
 * weighs for the meta clock: there is no second place that knows the shape of an argument.
 *
 * Letters: rows/cols of a row-major matrix, m n k of a product, n_tokens of a micro-batch whose documents
 * stand one after the other without padding. Strides are in elements. "compute dtype" is F32 or BF16. Sums
 * accumulate in fp32 (or more) and in an order that depends on shapes only, never on threads. Gradients of
 * parameters are fp32 and are added to (+=); gradients of activations are written (=). Optional addresses are
 * DEV_NONE. Outputs may not overlap inputs unless it says so.
 */
#ifndef FERRY_DEVICE_OP_H
#define FERRY_DEVICE_OP_H

#include "base/dtype.h"
#include "optim/adamw_step.h"
#include "optim/state_format.h"

#include <stdint.h>

/* An address in device memory. Not a pointer: the host must not follow it. */
typedef struct dev_addr {
	uint64_t value;
} dev_addr;

#define DEV_NONE ((dev_addr){0})

static inline dev_addr dev_at(dev_addr base, int64_t offset_bytes)
{
	return (dev_addr){base.value + (uint64_t)offset_bytes};
}

static inline int dev_is_none(dev_addr a)
{
	return a.value == 0;
}

enum op_kind {
	OP_FILL,
	OP_COPY,
	OP_CAST,
	OP_JOIN,
	OP_ADD,
	OP_MATMUL,
	OP_COLSUM,
	OP_GATHER,
	OP_SCATTER,
	OP_EMBED_GRAD,
	OP_RMSNORM,
	OP_RMSNORM_GRAD,
	OP_LAYERNORM,
	OP_LAYERNORM_GRAD,
	OP_ROPE,
	OP_ATTENTION,
	OP_ATTENTION_GRAD,
	OP_GLU,
	OP_GLU_GRAD,
	OP_ACT,
	OP_ACT_GRAD,
	OP_CROSS_ENTROPY,
	OP_SUMSQ,
	OP_CAST_SUMSQ,
	OP_ADAMW,
	OP_KIND_COUNT
};

enum act_kind {
	ACT_SILU,
	ACT_GELU,       /* x * Phi(x), by erf */
	ACT_GELU_TANH,  /* gelu_new, gelu_pytorch_tanh, gelu_fast */
	ACT_GELU_QUICK, /* x * sigmoid(1.702 x) */
	ACT_RELU,
	ACT_RELU2, /* relu(x)^2 */
};

/* dst[0..bytes) = value */
struct op_fill {
	dev_addr dst;
	int64_t bytes;
	uint8_t value;
};

/* dst = src, within the device */
struct op_copy {
	dev_addr dst, src;
	int64_t bytes;
};

/* dst[i] = (dst dtype) src[i]; F32 and BF16, rounding to nearest even */
struct op_cast {
	dev_addr dst, src;
	int64_t count;
	enum dtype dst_dtype, src_dtype;
};

/* dst[i] (F32) = the fp32 whose planes are hi[i], lo[i] (base/num.h) */
struct op_join {
	dev_addr dst, hi, lo;
	int64_t count;
};

/* dst = a + b, in `dtype`; dst may be a or b */
struct op_add {
	dev_addr dst, a, b;
	int64_t count;
	enum dtype dtype;
};

/* c[m,n] (+)= op(a)[m,k] * op(b)[k,n] (+ bias[n] on every row).
 * MATMUL_NORMAL: a is [m,k] / b is [k,n]; MATMUL_TRANSPOSED: a is stored [k,m] / b is stored [n,k].
 * accumulate 1: c is read and added to (c_dtype F32 only). A linear layer of torch (weight [out,in]) is a = x
 * [tokens,in] normal, b = weight transposed; its weight gradient is a = dy transposed, b = x normal,
 * accumulate, c F32. */
enum matmul_layout { MATMUL_NORMAL, MATMUL_TRANSPOSED };
struct op_matmul {
	dev_addr c, a, b, bias; /* bias in ab_dtype, optional, not together with accumulate */
	int64_t m, n, k;
	int64_t a_stride, b_stride, c_stride; /* of a stored row */
	enum matmul_layout a_layout, b_layout;
	enum dtype ab_dtype, c_dtype;
	int accumulate;
};

/* sum[c] (F32) += sum over rows of x[r,c] */
struct op_colsum {
	dev_addr sum, x;
	int64_t rows, cols, x_stride;
	enum dtype dtype;
};

/* out[i,:] (= or, with accumulate, +=) table[index[i],:]; 0 <= index < table_rows is the caller's promise,
 * and is checked by the host backend. Embedding lookup, and picking the rows that have a target. */
struct op_gather {
	dev_addr out, table, index;
	int64_t rows, cols, table_rows;
	enum dtype dtype;
	int accumulate;
};

/* out[index[i],:] = x[i,:]; the indices differ from each other. Other rows of out are not touched. */
struct op_scatter {
	dev_addr out, x, index;
	int64_t rows, cols, out_rows;
	enum dtype dtype;
};

/* grad[index[i],:] (F32) += dy[i,:], in ascending i for equal indices; rows whose index is skip_index add
 * nothing (-1: none is skipped). scratch: int32 [rows + table_rows + 1] for backends that sort. */
struct op_embed_grad {
	dev_addr grad, dy, index, scratch;
	int64_t rows, cols, table_rows, skip_index;
	enum dtype dtype;
};

/* Rows of `cols` elements: row r, group g (0 <= g < groups) starts at base + r * stride + g * group_stride.
 * groups > 1 normalises each head of a fused projection on its own. stat index is r * groups + g.
 *
 * rmsnorm (Zhang and Sennrich 2019): y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + epsilon).
 * layernorm (Ba et al. 2016): y = (x - mean) * rstd * weight + bias, rstd from the biased variance.
 * Backward: dx = (or += with accumulate_dx), dweight +=, dbias +=. weight, bias in `dtype`; stats, dweight,
 * dbias F32. dy and dx have the strides of y and x. dx may be dy when the strides agree and accumulate_dx is
 * 0. scratch of the grads: F32 [norm_scratch_count(rows, groups, cols)]. mean, bias, dbias: layernorm only;
 * bias and dbias are optional there. */
struct op_norm {
	dev_addr y, x, weight, bias, rstd, mean;
	int64_t rows, groups, cols, x_stride, y_stride, x_group_stride, y_group_stride;
	double epsilon;
	enum dtype dtype;
};
struct op_norm_grad {
	dev_addr dx, dweight, dbias, dy, x, weight, rstd, mean, scratch;
	int64_t rows, groups, cols, x_stride, y_stride, x_group_stride, y_group_stride;
	enum dtype dtype;
	int accumulate_dx;
};
int64_t norm_scratch_count(int64_t rows, int64_t groups, int64_t cols);

/* In place: for each token and each of `heads` heads (head h at x + token * stride + h * head_stride), the
 * pairs (x[j], x[j + rotary / 2]), j < rotary / 2, turn by the angle whose cosine and sine stand at
 * table[position[token]]: table is F32 [table_rows, rotary], the rotary/2 cosines first, then the sines.
 * ROPE_BACKWARD turns back (the gradient). (Su et al. 2021, in the half-split form of GPT-NeoX and Llama
 * checkpoints of HuggingFace.) */
enum rope_direction { ROPE_FORWARD, ROPE_BACKWARD };
struct op_rope {
	dev_addr x, table, position;
	int64_t tokens, heads, stride, head_stride, rotary, table_rows;
	enum rope_direction direction;
	enum dtype dtype;
};

/* Causal attention over the documents of a micro-batch, never forming tokens x tokens.
 * q head h of token t at q + t * qkv_stride + h * q_head_stride; k, v head g at + g * kv_head_stride; heads
 * is a multiple of kv_heads, query head h uses kv head h / (heads / kv_heads). out [tokens, heads * head_dim]
 * with out_stride. lse F32 [tokens, heads]: log of the sum of exp of the scaled scores. Token i sees j with
 * doc_start[i] <= j <= i and, when window > 0, j > i - window. doc_start, doc_end: int32 [tokens], index of
 * the first token of the token's document and one past its last. What the host knows of them may decide which
 * kernel runs, and what the op costs: how many `documents` there are, none longer than document_tokens (0: it
 * does not know). Softmax in fp32. Backward writes dq, dk, dv
 * in the layout of q, k, v. scratch: F32 [attention_scratch_count(...)]. */
struct op_attention {
	dev_addr out, lse, q, k, v, doc_start, doc_end;
	int64_t tokens, documents, document_tokens, heads, kv_heads, head_dim, window;
	int64_t qkv_stride, q_head_stride, kv_head_stride, out_stride;
	double scale;
	enum dtype dtype;
};
struct op_attention_grad {
	dev_addr dq, dk, dv, dout, out, lse, q, k, v, doc_start, doc_end, scratch;
	int64_t tokens, documents, document_tokens, heads, kv_heads, head_dim, window;
	int64_t qkv_stride, q_head_stride, kv_head_stride, out_stride;
	double scale;
	enum dtype dtype;
};
int64_t attention_scratch_count(int64_t tokens, int64_t heads, int64_t head_dim);

/* out = act(gate) * up; elementwise, contiguous (Shazeer 2020). Backward: dgate, dup from dout; dgate may be
 * gate's and dup may be up's or dout's own bytes (each element is read before it is written). */
struct op_glu {
	dev_addr out, gate, up;
	int64_t count;
	enum act_kind act;
	enum dtype dtype;
};
struct op_glu_grad {
	dev_addr dgate, dup, dout, gate, up;
	int64_t count;
	enum act_kind act;
	enum dtype dtype;
};

/* out = act(x); dx = dout * act'(x). out may be x; dx may be dout or x. */
struct op_act {
	dev_addr out, x;
	int64_t count;
	enum act_kind act;
	enum dtype dtype;
};
struct op_act_grad {
	dev_addr dx, dout, x;
	int64_t count;
	enum act_kind act;
	enum dtype dtype;
};

/* loss[r] (F32) = logsumexp(logits[r,:]) - logits[r, label[r]]; dlogits[r,:] = (softmax - onehot) *
 * grad_scale in dlogits_dtype, unless dlogits is DEV_NONE. logits F32 [rows, vocab] contiguous; dlogits
 * contiguous, and may be logits when F32, or BF16 packed into the front of logits' own bytes (row r of
 * dlogits is written after row r of logits was read, rows in order: allowed only as dlogits = logits). label
 * 0 <= label < vocab is the caller's promise; checked on host. scratch: F32
 * [cross_entropy_scratch_count(rows)] for backends that take the gradients of a row apart from its sum. */
struct op_cross_entropy {
	dev_addr loss, dlogits, logits, label, scratch;
	int64_t rows, vocab;
	float grad_scale;
	enum dtype dlogits_dtype;
};
int64_t cross_entropy_scratch_count(int64_t rows);

/* partial[b] (F64), b < ceil(count / 65536): sum of squares of block b (optim/adamw.h sumsq_blocks). x F32 or
 * BF16. */
struct op_sumsq {
	dev_addr partial, x;
	int64_t count;
	enum dtype dtype;
};

/* dst[i] (BF16) = src[i] (F32), as a cast, and partial as op_sumsq has it of dst: the same bits as one after
 * the other, in one pass. */
struct op_cast_sumsq {
	dev_addr dst, partial, src;
	int64_t count;
};

/* AdamW on planes that live on the device: optim/adamw.h, same scalars, same bits. m and v are as `state`
 * says (optim/state_format.h); m_scale and v_scale (F32, one for every ADAMW_BLOCK elements) are DEV_NONE
 * where the format has none. step.rounding_key, tensor and first choose how an element is rounded in BF16. */
struct op_adamw {
	dev_addr hi, lo, m, v, m_scale, v_scale, grad;
	int64_t count;
	int64_t first; /* index of element 0 in its tensor; with scales a multiple of ADAMW_BLOCK */
	int tensor;    /* index in the model's table */
	int decay;
	enum dtype grad_dtype;
	enum adamw_state state;
	struct adamw_step step;
};

struct op {
	enum op_kind kind;
	union {
		struct op_fill fill;
		struct op_copy copy;
		struct op_cast cast;
		struct op_join join;
		struct op_add add;
		struct op_matmul matmul;
		struct op_colsum colsum;
		struct op_gather gather;
		struct op_scatter scatter;
		struct op_embed_grad embed_grad;
		struct op_norm norm;           /* OP_RMSNORM, OP_LAYERNORM */
		struct op_norm_grad norm_grad; /* OP_RMSNORM_GRAD, OP_LAYERNORM_GRAD */
		struct op_rope rope;
		struct op_attention attention;
		struct op_attention_grad attention_grad;
		struct op_glu glu;
		struct op_glu_grad glu_grad;
		struct op_act act;
		struct op_act_grad act_grad;
		struct op_cross_entropy cross_entropy;
		struct op_sumsq sumsq;
		struct op_cast_sumsq cast_sumsq;
		struct op_adamw adamw;
	};
};

const char *op_name(enum op_kind kind);

/* Shapes positive, strides wide enough, dtypes allowed, addresses there and aligned to their elements,
 * nothing written over an operand that may not be (of those without gaps): 0, or ERR_RANGE naming the op and
 * the field. */
int op_check(const struct op *op);

/* Byte ranges that the op reads and writes (a range may cover the gaps of strides). A range may be listed
 * twice, once for reading and once for writing. Returns the number, at most OP_ACCESS_MAX. */
enum { OP_ACCESS_MAX = 16 };
struct op_access {
	dev_addr base;
	int64_t bytes;
	int writes;
};
int op_access_list(const struct op *op, struct op_access *list);

/* What the op costs at least: arithmetic of matrix products (attention included: the causal, windowed pairs
 * of documents that are as long as they can be), and bytes of device memory without the gaps of
 * strides. host_bytes is 0: it is for stream_call. */
struct op_cost {
	double flops_bf16, flops_f32, memory_bytes, host_bytes;
	double attention_flops; /* those of flops_bf16 and flops_f32 that are attention's */
};
void op_cost_of(const struct op *op, struct op_cost *cost);

#endif
