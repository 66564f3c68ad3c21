/* What the stages share: the state of one call with its first error, the layouts of acts and scratch, and
 * linear layers and norms over whatever way a family stores its matrices. Private to model/blocks.
 */
#ifndef FERRY_MODEL_BLOCKS_BLOCK_H
#define FERRY_MODEL_BLOCKS_BLOCK_H

#include "device/device.h"
#include "device/op.h"
#include "model/blocks/blocks.h"

/* Offsets in bytes, multiples of 256, each for `tokens` tokens. What a model does not need has no room and
 * must not be used. */
struct acts_layout {
	int64_t rstd1, mean1;   /* F32 [tokens] */
	int64_t norm1;          /* [tokens, C] normalised x */
	int64_t qkv;            /* [tokens, (H + 2 KV) D] q, k (rotated unless Q_NORM_W is there) and v */
	int64_t qk;             /* with Q_NORM_W: the same shape, q and k normalised and rotated */
	int64_t q_rstd, k_rstd; /* with Q_NORM_W: F32 [tokens, H], [tokens, KV] */
	int64_t mixed;          /* [tokens, H D] what attention gives */
	int64_t branch1;        /* a norm after attention: [tokens, C] its projection, before that norm */
	int64_t post_rstd1;     /* F32 [tokens] */
	int64_t lse;            /* F32 [tokens, H] */
	int64_t middle;         /* [tokens, C] x + attention's projection */
	int64_t rstd2, mean2;   /* F32 [tokens] */
	int64_t norm2;          /* [tokens, C] */
	int64_t gate, up;       /* [tokens, F]; after backward of `down` their gradients */
	int64_t branch2;        /* a norm after the MLP: [tokens, C] what it gives, before that norm */
	int64_t post_rstd2;     /* F32 [tokens] */
	int64_t bytes;
};

/* One layout for all stages of a block: what backward passes on has the same place in each. `hidden` and the
 * attention part share bytes: backward of the MLP is over when that of attention begins. */
struct scratch_layout {
	int64_t residual;     /* parallel_residual: [tokens, C] what norm2 adds to dx; without a norm2, the
	                         gradient of norm1's output that comes from the MLP */
	int64_t branch;       /* norms after, residual_scale: [tokens, C] dx through those */
	int64_t dnorm;        /* F32 [tokens, C] gradient of norm1's or norm2's output */
	int64_t dnorm_cast;   /* BF16 compute: the same, rounded */
	int64_t norm_partial; /* F32, of the norm gradients */
	int64_t norm_sink;    /* F32 [2 C] for gradients of frozen norms; no room where all train */
	int64_t hidden;       /* [tokens, F] act(gate) * up, then its gradient */
	int64_t dmixed;       /* [tokens, H D] */
	int64_t dqkv;         /* [tokens, (H + 2 KV) D] */
	int64_t attention;    /* F32, of the attention gradient */
	int64_t bytes;
};

struct head_layout {
	int64_t rows;           /* of a chunk */
	int64_t x, norm, dnorm; /* [rows, C] gathered input, normalised, gradients of both */
	int64_t rstd, mean;     /* F32 [rows] */
	int64_t loss_partial, norm_partial, norm_sink;
	int64_t logits; /* F32 [rows, V] */
	int64_t bytes;
};

struct acts_layout acts_layout_of(const struct model *model, enum dtype dtype, int64_t tokens);
struct scratch_layout scratch_layout_of(const struct model *model, enum dtype dtype, int64_t tokens);
struct head_layout head_layout_of(
        const struct model *model, enum dtype dtype, int64_t targets, int64_t head_rows);

/* Where q, k and v of a token stand in its row of qkv; strides in elements. */
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
	int writes_gradients; /* 1: products write gradients, 0: they add to them */
	int err;              /* first error; later ops are not queued */
};

void call_op(struct stage_call *call, const struct op *op);

dev_addr acts_at(const struct stage_call *call, int64_t offset_bytes);
dev_addr scratch_at(const struct stage_call *call, int64_t offset_bytes);

/* Takes room for count elements at *end_bytes: its offset. What follows is aligned for any op. */
int64_t layout_take(int64_t *end_bytes, int64_t count, int64_t element_bytes);

/* DEV_NONE where the model has no such tensor; grad_of where it is frozen, too. */
dev_addr weight_of(const struct stage_call *call, enum tensor_role role);
dev_addr grad_of(const struct stage_call *call, enum tensor_role role);

/* A matrix of the table applied to rows. Those of blocks follow weight_in_out; embeddings and heads do not.
 */
struct linear {
	enum tensor_role weight, bias; /* bias ROLE_COUNT: none */
	int64_t out, in;
	int in_out;    /* stored [in, out] */
	int64_t first; /* not in_out: row of a fused tensor where this matrix begins */
};

struct rows {
	dev_addr base;
	int64_t count, stride; /* stride in elements */
};

/* One row for each token of the call. */
static inline struct rows rows_at(const struct stage_call *call, dev_addr base, int64_t stride)
{
	return (struct rows){base, call->tokens, stride};
}

/* y = x W (+ bias), y in y_dtype. */
void linear_forward(struct stage_call *call, const struct linear *linear, struct rows y, enum dtype y_dtype,
        struct rows x);
/* dx (=, or += into F32) dy W^T */
enum linear_sum { LINEAR_WRITE, LINEAR_ADD };
void linear_backward_input(struct stage_call *call, const struct linear *linear, struct rows dx,
        enum dtype dx_dtype, enum linear_sum sum, struct rows dy);
/* Gradients of weight (=, with writes_gradients, or +=) and bias (+=); of frozen ones nothing. */
void linear_backward_weight(
        struct stage_call *call, const struct linear *linear, struct rows dy, struct rows x);

/* The norm of the family over [rows, C], and its gradient; dx may be dy where `sum` is LINEAR_WRITE. */
struct norm_place {
	enum tensor_role weight, bias;
	dev_addr rstd, mean;
};
void norm_forward(
        struct stage_call *call, const struct norm_place *norm, dev_addr y, dev_addr x, int64_t rows);
void norm_backward(struct stage_call *call, const struct norm_place *norm, dev_addr dx, dev_addr dy,
        dev_addr x, int64_t rows, enum linear_sum sum, dev_addr partial, dev_addr sink);

/* Where a norm's gradient op puts that of this weight: in the sink (F32 [2 C], never read) if it is frozen.
 */
dev_addr norm_grad_of(const struct stage_call *call, enum tensor_role role, dev_addr sink);
int64_t norm_sink_count(const struct model *model); /* F32 elements of a sink: 0 where every norm trains */

/* The gradient of a branch where it is added to the residual stream: dx, or through the norm after the
 * branch, whose input is at x. */
dev_addr branch_gradient(struct stage_call *call, const struct norm_place *post, dev_addr x);

/* What reads norm1's output reads x where there is no norm1. */
dev_addr norm1_output(const struct stage_call *call);

void call_add(struct stage_call *call, dev_addr dst, dev_addr a, dev_addr b, int64_t count);
/* dst = factor * src; dst may be src. */
void call_scale(struct stage_call *call, dev_addr dst, dev_addr src, int64_t count, double factor);
void call_cast(struct stage_call *call, dev_addr dst, dev_addr src, int64_t count);

/* The stages. */
#define STAGE_DECLARE(NAME, name, scope)                                                                     \
	void name##_forward(struct stage_call *call);                                                        \
	void name##_backward(struct stage_call *call);
STAGE_PASS_LIST(STAGE_DECLARE)
#undef STAGE_DECLARE
int64_t embed_scratch_bytes(const struct model *model, enum dtype dtype, int64_t tokens);

#endif
