/* The vocabulary head: final norm, head and token losses in chunks of rows, so that the logits never exist as
 * a whole. Private to model/blocks and objective. */
#ifndef FERRY_MODEL_BLOCKS_HEAD_H
#define FERRY_MODEL_BLOCKS_HEAD_H

#include "model/blocks/block.h"

int64_t head_scratch_bytes(const struct stage_call *call);

/* Token losses of the targets, and with HEAD_TRAIN the gradients. Rows without a target are skipped; without
 * any, HEAD_TRAIN zeroes dx and leaves gradients unchanged. */
struct token_losses {
	dev_addr label;   /* I32 [targets] */
	dev_addr weight;  /* F32 [targets], multiplies each target's gradient; DEV_NONE: 1 */
	double smoothing; /* as in device/op_loss.h */
	int finds;        /* 1, with HEAD_LOSS: also the class of the largest logit, I32, behind the losses */
	int is_again; /* 1: right after the same call with HEAD_LOSS: the logits of a single chunk are there */
};
void head_losses(struct stage_call *call, enum head_mode mode, const struct token_losses *t);

#endif
