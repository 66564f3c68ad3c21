/* The loss and its gradient (device/op.h says what all ops have in common). */
#ifndef FERRY_DEVICE_OP_LOSS_H
#define FERRY_DEVICE_OP_LOSS_H

#include "base/dtype.h"
#include "device/addr.h"

#define OP_LOSS_LIST(ROW) ROW(CROSS_ENTROPY, cross_entropy, cross_entropy)

/* With cap > 0 loss and gradient use cap * tanh(l / cap) for each logit l (Gemma 2). loss[r] (F32) =
 * logsumexp(logits[r,:]) - logits[r, label[r]]; dlogits[r,:] = (softmax - onehot) * grad_scale in
 * dlogits_dtype, unless dlogits is DEV_NONE. logits F32 [rows, vocab] contiguous; dlogits contiguous, and
 * may be logits when F32, or BF16 packed into the front of logits' own bytes (only with dlogits = logits:
 * rows go in order, and row r of dlogits is written after row r of logits is read). The caller guarantees 0
 * <= label < vocab; the host backend checks it. scratch: F32 [cross_entropy_scratch_count(rows)] for
 * backends that compute a row's gradients apart from its sum. */
struct op_cross_entropy {
	dev_addr loss, dlogits, logits, label, scratch;
	int64_t rows, vocab;
	float grad_scale;
	enum dtype dlogits_dtype;
	double cap;
};
int64_t cross_entropy_scratch_count(int64_t rows);

#endif
