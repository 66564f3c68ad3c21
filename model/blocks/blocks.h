/* Forward and backward of a model's stages, as ops queued on a stream (device/op.h). They own no memory and
 * wait for nothing: the caller says where every buffer is.
 */
#ifndef FERRY_MODEL_BLOCKS_BLOCKS_H
#define FERRY_MODEL_BLOCKS_BLOCKS_H

#include "model/model.h"

/* A micro-batch on the device; arrays int32. position is what model_position_rows writes. target_row are the
 * token indices whose next token is a target.
 */
struct device_batch {
	int64_t tokens, targets, documents;
	dev_addr id, position, doc_start, doc_end; /* [tokens] */
	dev_addr target_row, target_label;         /* [targets] */
};

/* The cache of keys and values of several texts: text_rows of each, all of them `rows`; a pass brings at most
 * pass_tokens new ones. rows 0: there is none. text_rows 0: texts have as many as they like, and all are
 * kept. */
struct cache_shape {
	int64_t rows, text_rows, pass_tokens;
};

/* Where the buffers of one call are. weight[t] is in the compute dtype, grad[t] F32 and added to (DEV_NONE:
 * frozen); both indexed by tensor of the table and valid for the stage's own tensors only.
 *
 *   x        [tokens, C] input of the block (of the head: output of the last block); output of embed is y
 *   y        [tokens, C] output of embed and of a block's last stage; DEV_NONE in a recomputing forward: what
 *            only y needs is then left out
 *   acts     model_acts_bytes: what a block's forward leaves for its backward, which overwrites parts of it;
 *            the stages of one block and micro-batch share it
 *   scratch  model_scratch_bytes: dead between calls in forward, but passed on from stage to stage within a
 *            block's backward
 *   dx       [tokens, C] gradient of the residual stream: of y on entry to the block's last stage, of x after
 *            its first; for the head, written, or DEV_NONE where no block before it trains; for embed, read
 *   loss     F32 [targets], head only
 *   grad_scale multiplies d(sum of losses)
 *   cache    generation: the block's keys and values, model_cache_bytes; doc_start and doc_end are then what
 *            op_attention_cached wants. DEV_NONE: tokens see those of their micro-batch
 *   first_gradient 1: gradients that are products (model_gradient_is_product) are written, whatever they held
 *   head_rows of logits that the head forms at once (model_head_rows)
 *   recompute 1: this forward only refills acts for a backward, at every stage of the block
 *
 * All are aligned to 256 bytes. x, y and dx are in the compute dtype. */
struct stage_memory {
	enum dtype dtype;
	const dev_addr *weight, *grad;
	dev_addr x, y, acts, scratch, dx, rope_table, loss, cache;
	int64_t rope_positions, head_rows;
	struct cache_shape cached;
	float grad_scale;
	int recompute, first_gradient;
};

int model_forward(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch);

/* Not for the head: model_head does forward, loss and, with HEAD_TRAIN, backward in chunks of rows; logits
 * never whole. Rows without a target are not computed. With no target at all dx is zero, and gradients stay
 * as they are. */
int model_backward(const struct model *model, int stage, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch);
enum head_mode { HEAD_LOSS, HEAD_TRAIN };
int model_head(const struct model *model, enum head_mode mode, struct stream *stream,
        const struct stage_memory *memory, const struct device_batch *batch);

/* Logits F32 [row_count, V] of chosen token indices (int32 `rows`, device), for sampling. memory->x as for
 * the head, scratch as for a head with row_count targets. */
int model_logits(const struct model *model, struct stream *stream, const struct stage_memory *memory,
        dev_addr logits, dev_addr rows, int64_t row_count, int64_t tokens);

/* Bytes of a block's cache. Blocks with a window keep the rows that a pass may see, where that is fewer:
 * model_cache_kept of each text, 0 = all. */
int64_t model_cache_bytes(
        const struct model *model, int layer, enum dtype dtype, const struct cache_shape *shape);
int64_t model_cache_rows(const struct model *model, int layer, const struct cache_shape *shape);
int64_t model_cache_kept(const struct model *model, int layer, const struct cache_shape *shape);

/* Bytes for a micro-batch of up to `tokens` tokens and `targets` targets; grow with both. head_rows as in
 * stage_memory; other stages have no use for it. */
int64_t model_acts_bytes(const struct model *model, enum dtype dtype, int64_t tokens);
int64_t model_scratch_bytes(const struct model *model, enum stage_kind kind, enum dtype dtype, int64_t tokens,
        int64_t targets, int64_t head_rows);

#endif
