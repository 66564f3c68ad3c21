/* What the stages of a block share: the state of one call, the layouts of acts and scratch, linear layers and
 * norms.
 *
 * A stage queues ops on a stream. struct stage_call keeps the first error; later ops are then not queued, so
 * callers check once. Linear layers and norms work for every way in which a family stores its matrices.
 * Private to model/blocks. */
#ifndef FERRY_MODEL_BLOCKS_BLOCK_H
#define FERRY_MODEL_BLOCKS_BLOCK_H

#include "device/device.h"
#include "device/op.h"
#include "model/blocks/blocks.h"

/* Offsets in bytes, multiples of 256, each for `tokens` tokens. A part that a model does not need has no room
 * and must not be used. */
struct acts_layout {
	int64_t rstd1, mean1;   /* F32 [tokens] */
	int64_t norm1;          /* [tokens, C] normalised x */
	int64_t qkv;            /* [tokens, (H + 2 KV) D] q, k (rotated unless a norm comes first) and v */
	int64_t qk;             /* with Q_NORM_W: the same shape, q and k normalised and rotated */
	int64_t q_rstd, k_rstd; /* with Q_NORM_W: F32 [tokens, H], [tokens, KV] */
	int64_t mixed;          /* [tokens, H D] attention's output */
	int64_t branch1;        /* with POST_NORM1_W: [tokens, C] attention's projection, before that norm */
	int64_t post_rstd1;     /* F32 [tokens] */
	int64_t lse;            /* F32 [tokens, H] */
	int64_t middle;         /* [tokens, C] x + attention's projection */
	int64_t rstd2, mean2;   /* F32 [tokens] */
	int64_t norm2;          /* [tokens, C] */
	int64_t gate, up;       /* [tokens, F]; backward of `down` overwrites them with their gradients */
	int64_t branch2;        /* with POST_NORM2_W: [tokens, C] the MLP's output, before that norm */
	int64_t post_rstd2;     /* F32 [tokens] */
	int64_t bytes;
};

/* One layout for all stages of a block, because backward passes values from stage to stage. `hidden` and
 * attention's part share bytes: backward of the MLP ends before backward of attention begins. */
struct scratch_layout {
	int64_t residual; /* parallel_residual: [tokens, C] norm2's part of dx; without a norm2, the MLP's
	                     part of the gradient of norm1's output */
	int64_t branch;   /* with POST_NORM1_W, POST_NORM2_W or residual_scale: [tokens, C] dx before these */
	int64_t dnorm;    /* F32 [tokens, C] gradient of norm1's or norm2's output */
	int64_t dnorm_cast;   /* BF16 compute: the same, rounded */
	int64_t norm_partial; /* F32, scratch of the norm gradients */
	int64_t norm_zeros;   /* [norm_zero_count] */
	int64_t norm_sink;    /* F32 [norm_sink_count] for gradients of frozen norms; no room if all train */
	int64_t adapter, adapter_grad; /* with adapters: [tokens, rank] s A x and its gradient */
	int64_t hidden;                /* [tokens, F] act(gate) * up, then its gradient */
	int64_t dmixed;                /* [tokens, H D] */
	int64_t dqkv;                  /* [tokens, (H + 2 KV) D] */
	int64_t attention;             /* F32, scratch of the attention gradient */
	int64_t bytes;
};

struct head_layout {
	int64_t rows;           /* rows of a chunk */
	int64_t x, norm, dnorm; /* [rows, C] gathered input, the same normalised, gradient of either */
	int64_t rstd, mean;     /* F32 [rows] */
	int64_t loss_partial, norm_partial, norm_zeros, norm_sink;
	int64_t logits; /* F32 [rows, V] */
	int64_t bytes;
};

struct acts_layout acts_layout_of(const struct model *model, enum dtype dtype, int64_t tokens);
struct scratch_layout scratch_layout_of(const struct model *model, enum dtype dtype, int64_t tokens);
struct head_layout head_layout_of(
        const struct model *model, enum dtype dtype, int64_t targets, int64_t head_rows);

/* Fused q, k and v by head, where heads of q share k and v. Two products for each k and v put all q first,
 * then k, v of head 0, k, v of head 1, ... */
static inline int qkv_is_by_group(const struct model_config *c)
{
	return c->qkv_by_head && c->KV != c->H && c->KV > 1;
}

/* Offsets of q, k and v in a token's row of qkv; offsets and strides in elements. */
struct qkv_place {
	int64_t stride, q, k, v, q_head_stride, kv_head_stride;
};
struct qkv_place qkv_place_of(const struct model_config *c);

/* One call of a stage. */
struct stage_call {
	const struct model *model;
	const struct model_config *c;
	struct stream *stream;
	const struct stage_memory *memory;
	const struct device_batch *batch;
	int layer;
	enum dtype dtype;
	int64_t tokens, element_bytes;
	struct acts_layout acts;
	struct scratch_layout scratch;
	int writes_gradients; /* 1: products overwrite gradients, 0: they add to them */
	int err;              /* first error; later ops are not queued */
};

void call_op(struct stage_call *call, const struct op *op);

dev_addr acts_at(const struct stage_call *call, int64_t offset_bytes);
dev_addr scratch_at(const struct stage_call *call, int64_t offset_bytes);

/* Reserves room for count elements at *end_bytes and returns its offset. Moves *end_bytes to the next offset
 * that is aligned for any op. */
int64_t layout_take(int64_t *end_bytes, int64_t count, int64_t element_bytes);

/* DEV_NONE if the model has no such tensor; grad_of also if the tensor is frozen. */
dev_addr weight_of(const struct stage_call *call, enum tensor_role role);
dev_addr grad_of(const struct stage_call *call, enum tensor_role role);

/* A matrix of the table that multiplies rows. Matrices of blocks follow weight_in_out; embeddings and heads
 * do not. */
struct linear {
	enum tensor_role weight, bias; /* bias ROLE_COUNT: none */
	int64_t out, in;
	int in_out;    /* stored [in, out] */
	int64_t first; /* row at which this matrix begins in a fused tensor; only if not in_out */
	int is_later;  /* backward of another matrix of the tensor comes before */
};

struct rows {
	dev_addr base;
	int64_t count, stride; /* stride in elements */
};

static inline struct rows rows_at(const struct stage_call *call, dev_addr base, int64_t stride)
{
	return (struct rows){base, call->tokens, stride};
}

/* y = x W (+ bias), y in y_dtype. All three include the matrix's adapter, if it has one. */
void linear_forward(struct stage_call *call, const struct linear *linear, struct rows y, enum dtype y_dtype,
        struct rows x);
/* dx = dy W^T, or with LINEAR_ADD dx += dy W^T into F32. */
enum linear_sum { LINEAR_WRITE, LINEAR_ADD };
void linear_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, enum linear_sum sum, struct rows dy);
/* Writes the weight's gradient (with writes_gradients) or adds to it, and adds to the bias's. Skips frozen
 * tensors. */
void linear_backward_weight(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x);

/* The family's norm over [rows, C], and its gradient. dx may be dy with LINEAR_WRITE. `partial` is the op's
 * scratch, `sink` takes the gradients of frozen norms. */
struct norm_place {
	enum tensor_role weight, bias;
	dev_addr rstd, mean;
	dev_addr zeros; /* with norm_plain: room for norm_zero_count elements of the compute dtype */
};
void norm_forward(
        struct stage_call *call, const struct norm_place *norm, dev_addr y, dev_addr x, int64_t rows);
void norm_backward(struct stage_call *call, const struct norm_place *norm, dev_addr dx, dev_addr dy,
        dev_addr x, int64_t rows, enum linear_sum sum, dev_addr partial, dev_addr sink);

/* The address for the gradient of a norm's weight: the sink (F32, never read) if the weight is frozen. */
dev_addr norm_grad_of(const struct stage_call *call, enum tensor_role role, dev_addr sink);
/* The weight that a norm reads. A norm without one reads zeros, to which norm_weight_offset, 1, is added. */
dev_addr norm_weight_of(struct stage_call *call, enum tensor_role role, dev_addr zeros);
int64_t norm_zero_count(const struct model_config *c); /* 0 if norms have weights */

int64_t norm_sink_count(const struct model *model); /* F32 elements of a sink; 0 if every norm trains */

/* The gradient of a branch's output, computed from dx: through residual_scale and the norm after the branch,
 * if the model has them. That norm's input is x. */
dev_addr branch_gradient(struct stage_call *call, const struct norm_place *post, dev_addr x);

/* norm1's output, or x if the model has no norm1. */
dev_addr norm1_output(const struct stage_call *call);

void call_add(struct stage_call *call, dev_addr dst, dev_addr a, dev_addr b, int64_t count);
/* dst = factor * src; dst may be src. */
void call_scale(struct stage_call *call, dev_addr dst, dev_addr src, int64_t count, double factor);
void call_cast(struct stage_call *call, dev_addr dst, dev_addr src, int64_t count);

#define STAGE_DECLARE(NAME, name, scope)                                                                     \
	void name##_forward(struct stage_call *call);                                                        \
	void name##_backward(struct stage_call *call);
STAGE_PASS_LIST(STAGE_DECLARE)
#undef STAGE_DECLARE
int64_t embed_scratch_bytes(const struct model *model, enum dtype dtype, int64_t tokens);

#endif
