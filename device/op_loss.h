/* The loss and its gradient (device/op.h says what all ops have in common). */
#ifndef FERRY_DEVICE_OP_LOSS_H
#define FERRY_DEVICE_OP_LOSS_H

#include "base/dtype.h"
#include "device/addr.h"

#define OP_LOSS_LIST(ROW) ROW(CROSS_ENTROPY, cross_entropy, cross_entropy)

/* With cap > 0 each logit l stands for cap * tanh(l / cap), in loss and gradient (Gemma 2). loss[r] (F32) =
 * logsumexp(logits[r,:]) - logits[r, label[r]]; dlogits[r,:] = (softmax - onehot) * grad_scale in
 * dlogits_dtype, unless dlogits is DEV_NONE. logits F32 [rows, vocab] contiguous; dlogits contiguous, and may
 * be logits when F32, or BF16 packed into the front of logits' own bytes (row r of dlogits is written after
 * row r of logits was read, rows in order: allowed only as dlogits = logits). label 0 <= label < vocab is the
 * caller's promise; checked on host. scratch: F32 [cross_entropy_scratch_count(rows)] for backends that take
 * the gradients of a row apart from its sum. */
struct op_cross_entropy {
	dev_addr loss, dlogits, logits, label, scratch;
	int64_t rows, vocab;
	float grad_scale;
	enum dtype dlogits_dtype;
	double cap;
};
int64_t cross_entropy_scratch_count(int64_t rows);

#endif
