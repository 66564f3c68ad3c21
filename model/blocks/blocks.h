/* Forward and backward of a model's stages, as ops queued on a stream (device/op.h).
 *
 * A stage is the smallest piece of forward and backward, such as a block's attention. Stages own no memory:
 * the caller passes the address of every buffer in struct stage_memory. The functions queue ops and do not
 * wait for them. */
#ifndef FERRY_MODEL_BLOCKS_BLOCKS_H
#define FERRY_MODEL_BLOCKS_BLOCKS_H

#include "model/acts_level.h"   /* IWYU pragma: export */
#include "model/blocks/batch.h" /* IWYU pragma: export */
#include "model/model.h"

/* What generation keeps of several texts (KV cache): text_rows rows for each text, `rows` in all. A pass
 * brings at most pass_tokens new tokens. rows 0: no cache. text_rows 0: a text may have any number of rows,
 * and the cache keeps all. */
struct cache_shape {
	int64_t rows, text_rows, pass_tokens;
};

/* Texts of a cache, and the rows of each: one text has them all if text_rows does not say. */
static inline int64_t cache_text_rows(const struct cache_shape *shape)
{
	return shape->text_rows ? shape->text_rows : shape->rows;
}
static inline int64_t cache_texts(const struct cache_shape *shape)
{
	return shape->rows ? shape->rows / cache_text_rows(shape) : 0;
}

/* The buffers of one call. weight[t] is in the compute dtype; with scales[t] (scales NULL or DEV_NONE:
 * none) it has codes of E4M3, and products are those of FP8 (device/op_coded.h). Gradients are added to
 * grad[t], F32; DEV_NONE: frozen. Both are indexed by tensor of the table, `value` by value. They are
 * valid only for the stage's own.
 *
 *   weight_rows     by tensor, 1: weight[t] has only the rows that the micro-batch's tokens look up, at
 *                   most one for each token, and batch->row says which; NULL: all have all rows
 *   grad_rows       by tensor, 1: grad[t] takes the gradient of each token's row, [tokens, columns] in the
 *                   compute dtype, instead of their sum by row
 *   x               [tokens, C] input of the group (of the head: output of the last block); embed has none
 *   y               [tokens, C] output of the group, of the last stage that writes the stream; DEV_NONE in
 *                   a recomputing forward, which then skips all that only y needs
 *   acts            model_acts_bytes: activations that a group's forward leaves for its backward, which
 *                   overwrites some; all stages of one group and micro-batch share them. With a level other
 *                   than ACTS_ALL those that it keeps are in `kept`, model_kept_bytes, and acts are the rest
 *   level           which activations are in `kept`; a recomputing forward finds them there and leaves out
 *                   what only they need
 *   scratch         model_scratch_bytes: dead between calls in forward, but passed on from stage to stage
 *                   within a group's backward
 *   dx              [tokens, C] gradient of the residual stream: of y on entry to the group's last stage,
 *                   of x after its first; the head writes it, or it is DEV_NONE if nothing below trains;
 *                   embed reads it
 *   loss            F32 [targets], head only
 *   row_norms       model_row_norms_bytes: of a stage with magnitudes (DoRA), what model_row_norms wrote
 *   grad_scale      multiplies d(sum of what the objective is a mean over)
 *   state           generation: the stage's model_state_bytes, such as keys and values; doc_start and
 *                   doc_end are then those of op_attention_cached. DEV_NONE: tokens see only tokens of their
 *                   micro-batch
 *   first_gradient  1: gradients that are products (model_gradient_is_product) are overwritten, not added
 *                   to
 *   vectors         F32 [documents, width + VECTOR_FACTS], head only: vectors of documents, or their
 *                   gradients
 *   head_rows       rows of logits that the head computes at once (model_head_rows)
 *   neftune_alpha   with batch->noise: size of the noise of embeddings (device/op_noise.h)
 *   tally           of the micro-batch (model/blocks/balance.h); DEV_NONE: none is wanted
 *   balance_share   weight of its loss in the step's
 *   recompute       1: this forward only refills acts for a backward, at every stage of the group
 *
 * All are aligned to 256 bytes. x, y and dx are in the compute dtype. */
struct stage_value {
	dev_addr at;   /* [tokens, columns], compute dtype; its maker writes it, in every forward */
	dev_addr grad; /* F32, sum of its readers' gradients; DEV_NONE: not wanted, or nobody computed one */
	int writes_grad; /* 1: this reader is the first in backward and overwrites it; others add to it */
};

struct stage_memory {
	enum dtype dtype;
	enum acts_level level;
	const dev_addr *weight, *grad, *scales;
	const uint8_t *weight_rows, *grad_rows;
	const struct stage_value *value;
	dev_addr x, y, acts, kept, scratch, dx, rope_table, loss, state, vectors, tally, row_norms;
	int64_t rope_positions, head_rows;
	struct cache_shape cached;
	float grad_scale;
	int recompute, first_gradient;
	double neftune_alpha, balance_share;
	const double *settings; /* head only: the objective's */
};

int model_forward(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch);

/* Not for the head. */
int model_backward(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch);

/* The norms of rows of W + s B A, for each matrix of the stage with magnitudes. Forward and backward of all
 * micro-batches read them: they change with the weights only. 0 bytes: there are none. */
int64_t model_row_norms_bytes(const struct model *model, int stage);
int model_row_norms(
        const struct model *model, int stage, struct stream *stream, const struct stage_memory *memory);

/* The last stage: forward, losses and, with HEAD_TRAIN, backward in one call, as an objective does them
 * (objective/objective.h). Without any target a pass writes a dx of 0 and no gradients.
 *
 * An objective over vectors has two calls instead: HEAD_VECTORS writes those of a micro-batch's documents,
 * and HEAD_GRADIENTS does backward from their gradients. Behind each vector are the facts of its document. */
enum head_mode { HEAD_LOSS, HEAD_TRAIN, HEAD_VECTORS, HEAD_GRADIENTS };
enum { VECTOR_LABEL, VECTOR_TOKENS, VECTOR_PLACE, VECTOR_FACTS };
struct stage_call; /* model/blocks/block.h */
struct head_pass {
	void (*run)(struct stage_call *call, enum head_mode mode);
	int64_t (*scratch_bytes)(const struct stage_call *call); /* grow with tokens, targets and documents */
	int also; /* 4-byte numbers a target that HEAD_LOSS writes behind all losses */
};
extern const struct head_pass head_of_tokens; /* own[0]: labels; setting 0: smoothing */
int model_head(const struct model *model, const struct head_pass *pass, enum head_mode mode,
        struct stream *stream, const struct stage_memory *memory, const struct device_batch *batch);
int64_t model_head_scratch_bytes(const struct model *model, const struct head_pass *pass, enum dtype dtype,
        const struct batch_sizes *most, int64_t head_rows);

/* Logits F32 [row_count, V] of the token indices in `rows` (int32, on the device), for sampling. memory->x is
 * that of the head, scratch that of a head with row_count targets. */
int model_logits(const struct model *model, struct stream *stream, const struct stage_memory *memory,
        dev_addr logits, dev_addr rows, int64_t row_count, int64_t tokens);

/* 1 if the stage writes y, its group's output: it is the last that writes the residual stream. */
int model_writes_output(const struct model *model, int stage);

/* 1 if backward of the stage reads its weights. */
int model_backward_reads(const struct model *model, int stage);

/* Bytes that a stage's state of generation takes, 0: it has none. And whether a text whose state has
 * `reached` tokens may go on at its token `at`, for all stages: a window forgets, and a recurrent state
 * cannot go back. */
int64_t model_state_bytes(
        const struct model *model, int stage, enum dtype dtype, const struct cache_shape *shape);
int model_state_goes_back(
        const struct model *model, const struct cache_shape *shape, int64_t reached, int64_t at);

/* Bytes of a group's buffers for a micro-batch of up to `tokens` tokens and `targets` targets; they grow with
 * both. head_rows as in stage_memory; targets and head_rows: only logits of the head use them. */
int64_t model_acts_bytes(const struct model *model, int group, enum dtype dtype, int64_t tokens);
/* Those that a level keeps apart, 0: none, as of ACTS_ALL. */
int64_t model_kept_bytes(
        const struct model *model, int group, enum acts_level level, enum dtype dtype, int64_t tokens);
int64_t model_scratch_bytes(const struct model *model, int group, enum dtype dtype, int64_t tokens,
        int64_t targets, int64_t head_rows);

#endif
