/* Kinds of stages as objects, and what they are made of: the state of one call, linear layers, norms.
 *
 * A kind of stage is a file with one struct stage_type. It has its own layout of activations and scratch. A
 * stage queues ops on a stream. struct stage_call keeps the first error; later ops are then not queued, so
 * callers check once. Linear layers and norms work for every way in which a family stores its matrices.
 *
 * To add a kind: a row in STAGE_LIST (model/roles.h) with the roles of its tensors, and its file here.
 * Private to model/blocks and to the passes of objectives. */
#ifndef FERRY_MODEL_BLOCKS_BLOCK_H
#define FERRY_MODEL_BLOCKS_BLOCK_H

#include "device/device.h"
#include "device/op.h"
#include "model/blocks/blocks.h"
#include "model/join.h"

/* The part of scratch that all stages of a block share: what linear layers and norms need, and what the MLP
 * leaves for attention. Offsets in bytes. A part that a block does not need has no room and must not be used.
 * Each stage's own part follows; those of a group share bytes. */
struct block_scratch {
	int64_t residual;   /* parallel_residual: [tokens, C], norm2's part of dx; without a norm2, the MLP's
	                       part of the gradient of norm1's output; of a scan beside attention, its part */
	int64_t branch;     /* [tokens, C], dx before a norm or a scale behind a branch */
	int64_t dnorm;      /* F32 [tokens, C], gradient of the output of a norm */
	int64_t dnorm_cast; /* BF16 compute: the same, rounded */
	int64_t norm_partial; /* F32, scratch of the norm gradients */
	int64_t norm_zeros;   /* [norm_zeros] */
	int64_t norm_sink;    /* F32 [norm_sink_count], gradients of frozen norms; no room if all train */
	int64_t adapter, adapter_grad; /* with adapters: [tokens, rank], s A x and its gradient */
	int64_t dropped;               /* with dropout: [tokens, widest input of an adapter] */
	int64_t codes, code_scales; /* with FP8 products: [tokens, widest side of a matrix], and F32 scales */
	int64_t scaled;             /* with magnitudes: [tokens, widest output of an adapter] */
	int64_t bytes;
};

/* Whose s dy B is in scratch.adapter_grad: of a matrix from row `first` on, from the gradient dy of its
 * output (DEV_NONE: of none), made by a step of backward for the other one. */
enum backward_step { BACKWARD_INPUT, BACKWARD_WEIGHT };
struct inner_grad {
	enum tensor_role weight;
	int64_t first;
	dev_addr dy;
	enum backward_step step;
};

/* One call of a stage. */
struct stage_call {
	const struct model *model;
	const struct model_config *c;
	const struct block_config *block; /* NULL outside of blocks */
	struct stream *stream;
	const struct stage_memory *memory;
	const struct device_batch *batch;
	int stage, layer;
	enum dtype dtype;
	int64_t tokens, element_bytes;
	int64_t targets, documents, head_rows; /* head only */
	/* Of this stage: its activations, or those that are kept, the first kept_bytes of its layout, and the
	 * rest. And where the parts of each stage of the group begin. */
	dev_addr acts, kept;
	int64_t kept_bytes;
	int64_t acts_first[BLOCK_STAGES_MAX], kept_first[BLOCK_STAGES_MAX];
	struct block_scratch scratch;
	/* The keys of noise of the rows that linear layers work on, where these are not the batch's tokens:
	 * U64 [rows]. DEV_NONE: batch->noise. */
	dev_addr row_noise;
	struct inner_grad inner_grad;
	const void *layout;   /* the stage's own, while it works */
	int writes_gradients; /* 1: products overwrite gradients, 0: they add to them */
	int err;              /* first error; later ops are not queued */
};

/* A kind of stage. NULL: none. Of a call, the layouts get all but stream, memory and batch. Bytes are
 * multiples of 256 and grow with tokens and targets. */
struct stage_type {
	void (*forward)(struct stage_call *call);
	void (*backward)(struct stage_call *call);
	int writes_stream; /* 1: forward leaves the residual stream at stream_out */
	int64_t (*acts_bytes)(const struct stage_call *call); /* what forward leaves for backward */
	/* How many of these bytes, from the first on, a level keeps: no fewer than the level before. NULL:
	 * none. forward must leave out what only such activations need (acts_are_kept). keeps_stream: whether
	 * ACTS_PRODUCTS also keeps the stream that the stage leaves. */
	int64_t (*kept_bytes)(const struct stage_call *call, enum acts_level level);
	int (*keeps_stream)(const struct stage_call *call);
	int64_t (*scratch_bytes)(const struct stage_call *call); /* its part of scratch, see own_scratch_at */
	int (*backward_reads)(
	        const struct stage_call *call); /* 0: backward reads no weights; NULL: it does */
	/* Generation. The state of all texts that a call brings from one micro-batch to the next, such as
	 * keys and values. goes_back: whether a text whose state has `reached` tokens may go on at token `at`
	 * before. */
	int64_t (*state_bytes)(const struct stage_call *call, const struct cache_shape *shape);
	int (*state_goes_back)(
	        const struct stage_call *call, const struct cache_shape *shape, int64_t reached, int64_t at);
};

/* A call without stream, memory and batch. call_place finds the stage's activations and scratch in memory. */
struct stage_call call_shape(const struct model *model, int stage, enum dtype dtype, int64_t tokens);
void call_place(struct stage_call *call);
struct block_scratch block_scratch_of(const struct stage_call *call);

/* Whether the gradient of the output of norm1, of norm2, is a sum of several products, made in F32. */
int attn_sums_gradients(const struct stage_call *call);
int mlp_sums_gradients(const struct stage_call *call);

#define STAGE_DECLARE(NAME, name, scope, stands_in) extern const struct stage_type stage_##name;
STAGE_LIST(STAGE_DECLARE)
#undef STAGE_DECLARE
extern const struct stage_type *const stage_types[STAGE_COUNT];

/* Whether the call's block or, outside of blocks, the model has a tensor of this role. */
static inline int call_has(const struct stage_call *call, enum tensor_role role)
{
	return (call->block ? call->block->has : call->c->has)[role];
}

void call_op(struct stage_call *call, const struct op *op);

/* In the activations of this stage; in shared scratch; in the scratch of this stage. */
dev_addr acts_at(const struct stage_call *call, int64_t offset_bytes);
dev_addr scratch_at(const struct stage_call *call, int64_t offset_bytes);
dev_addr own_scratch_at(const struct stage_call *call, int64_t offset_bytes);

/* Whether the activations at this offset, or the stream that the stage leaves, are there already: forward
 * recomputes, and they were kept. */
int acts_are_kept(const struct stage_call *call, int64_t offset_bytes);
int stream_is_kept(const struct stage_call *call);

/* The residual stream [tokens, C] before this stage's sublayer: where the last stage of the group that writes
 * it has left it, or the group's input. And where this one leaves it: y, if it is the group's last that does.
 * That is DEV_NONE in a recomputing forward, which then skips all that only y needs. */
dev_addr stream_in(const struct stage_call *call);
dev_addr stream_out(const struct stage_call *call);

/* This call as one of the stage of that kind in its group; stage -1 if the group has none. */
struct stage_call call_beside(const struct stage_call *call, enum stage_kind kind);

/* Reserves room for count elements at *end_bytes and returns its offset. Moves *end_bytes to the next offset
 * that is aligned for any op. */
int64_t layout_take(int64_t *end_bytes, int64_t count, int64_t element_bytes);

/* DEV_NONE if the stage has no such tensor; grad_of also if the tensor is frozen; scales_of if its weights
 * are no codes. */
dev_addr weight_of(const struct stage_call *call, enum tensor_role role);
dev_addr scales_of(const struct stage_call *call, enum tensor_role role);
dev_addr grad_of(const struct stage_call *call, enum tensor_role role);
/* Forward looks up the rows of a table (KIND_ROWS) by `index`: out [tokens, columns]. Backward adds dy, the
 * gradients of these rows times factor, to the table's: dy may be overwritten, `sorted` is op_embed_grad's
 * scratch. Nothing if the table is frozen. */
void rows_forward(struct stage_call *call, enum tensor_role role, dev_addr out);
void rows_backward(
        struct stage_call *call, enum tensor_role role, dev_addr dy, double factor, dev_addr sorted);
/* Whether there is such a tensor, and it does not train. */
int call_has_frozen(const struct stage_call *call, enum tensor_role role);

/* The address for the gradient of a tensor that is no matrix: the sink, never read, if it is frozen; DEV_NONE
 * if there is no such tensor. */
dev_addr grad_or(const struct stage_call *call, enum tensor_role role, dev_addr sink);

/* The stage's n-th value, in the order of struct model_stage. */
const struct stage_value *value_of(const struct stage_call *call, int n);

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

/* The adapter's part of the embedding of the batch's tokens: y [tokens, C] += its rows; and the gradients of
 * A and B. `sorted` is the scratch of op_embed_grad. Nothing without one. */
void adapter_embed(struct stage_call *call, dev_addr y);
void adapter_embed_backward(struct stage_call *call, dev_addr dy, dev_addr sorted);

int linear_has_adapter(const struct stage_call *call, enum tensor_role weight);

/* The same for the matrices of a join (model/join.h), whose outputs lie side by side in a row of y: one
 * product each for y, for dx, which is written, and for the gradient of all weights. */
struct joined {
	enum role_join join;
	int64_t in, out[JOIN_MOST];
};
void joined_forward(struct stage_call *call, const struct joined *joined, struct rows y, struct rows x);
void joined_backward(struct stage_call *call, const struct joined *joined, struct rows dx,
        enum dtype dx_dtype, struct rows dy, struct rows x);
/* Whether one of them has an adapter. */
int joined_has_adapter(const struct stage_call *call, enum role_join join);

/* The family's norm over [rows, C], and its gradient. dx may be dy with LINEAR_WRITE. `partial` is the op's
 * scratch, `sink` takes the gradients of frozen norms. */
struct norm_place {
	enum tensor_role weight, bias;
	dev_addr rstd, mean;
	dev_addr zeros; /* of a norm without weight: room for norm_zeros elements of the compute dtype */
};
void norm_forward(
        struct stage_call *call, const struct norm_place *norm, dev_addr y, dev_addr x, int64_t rows);
void norm_backward(struct stage_call *call, const struct norm_place *norm, dev_addr dx, dev_addr dy,
        dev_addr x, int64_t rows, enum linear_sum sum, dev_addr partial, dev_addr sink);

/* The address for the gradient of a norm's weight: the sink (F32, never read) if the weight is frozen. */
dev_addr norm_grad_of(const struct stage_call *call, enum tensor_role role, dev_addr sink);
/* The weight that a norm reads, and what is added to it. A norm without one reads zeros, to which 1 is added.
 */
dev_addr norm_weight_of(struct stage_call *call, enum tensor_role role, dev_addr zeros);
double norm_offset_of(const struct stage_call *call, enum tensor_role role);
int64_t norm_sink_count(const struct model *model); /* F32 elements of a sink; 0 if every norm trains */

/* A scan beside attention reads attention's input, and both are added to the stream. */
static inline int scan_is_beside(const struct stage_call *call)
{
	return call->block && call->block->has[ROLE_SCAN_IN_W] && call->block->has[ROLE_O_W];
}

/* What the branch of a stage is multiplied by before it joins the stream; 1: nothing. */
double branch_scale(const struct stage_call *call);
int block_scales_branches(const struct stage_call *call); /* 1: some stage of the block does that */

/* Where a branch leaves its output: `kept`, in activations, if a norm follows, else stream_out. branch_end
 * adds the stream to it, through that norm and branch_scale, if the model has them. */
dev_addr branch_at(const struct stage_call *call, const struct norm_place *post, dev_addr kept);
void branch_end(struct stage_call *call, const struct norm_place *post, dev_addr branch);
/* Whether the branch is there already, if it is at this offset where a norm follows; and what branch_end has
 * to do for such a one. */
int branch_is_kept(const struct stage_call *call, const struct norm_place *post, int64_t offset_bytes);
void branch_end_again(struct stage_call *call, const struct norm_place *post, dev_addr branch);

/* The gradient of a branch's output, computed from dx: through branch_scale and the norm after the branch,
 * if the model has them. That norm's input is x. */
dev_addr branch_gradient(struct stage_call *call, const struct norm_place *post, dev_addr x);

/* The input of attention's projections: of a call of another stage too. */
dev_addr attn_input(const struct stage_call *call);

void call_add(struct stage_call *call, dev_addr dst, dev_addr a, dev_addr b, int64_t count);
/* dst = or += `columns` of rows of src; strides in elements. */
void call_columns(struct stage_call *call, dev_addr dst, int64_t dst_stride, enum dtype dst_dtype,
        dev_addr src, int64_t src_stride, enum dtype src_dtype, int64_t columns, int adds);
/* dst = factor * src; dst may be src. */
void call_scale(struct stage_call *call, dev_addr dst, dev_addr src, int64_t count, double factor);
void call_cast(struct stage_call *call, dev_addr dst, dev_addr src, int64_t count);

#endif
