/* The loss of tokens and its gradient (device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_LOSS_H
#define FERRY_DEVICE_OP_LOSS_H

#include "base/dtype.h"
#include "device/addr.h"

#define OP_LOSS_LIST(ROW) ROW(CROSS_ENTROPY, cross_entropy, cross_entropy)

/* loss[r] (F32) = logsumexp(logits[r,:]) - sum of q * logits[r,:]; dlogits[r,:] = (softmax - q) *
 * grad_scale * weight[r] in dlogits_dtype, unless dlogits is DEV_NONE. q is smoothing / vocab everywhere and
 * 1 - smoothing more at label[r]. weight: F32 [rows]; DEV_NONE: 1. With cap > 0 both use cap * tanh(l / cap)
 * for each logit l (Gemma 2).
 *
 * logits: F32 [rows, vocab]; dlogits has the same shape, and both are contiguous. dlogits may be logits. If
 * it is BF16, it then fills the front of logits' bytes: rows go in order, and row r of dlogits is written
 * after row r of logits is read. The caller guarantees 0 <= label < vocab; the host backend checks it.
 * scratch: F32 [cross_entropy_scratch_count(rows)], for backends that compute a row's gradients apart from
 * its sum. */
struct op_cross_entropy {
	dev_addr loss, dlogits, logits, label, scratch;
	int64_t rows, vocab;
	float grad_scale;
	enum dtype dlogits_dtype;
	double cap;
	dev_addr weight;
	double smoothing; /* in [0, 1] */
};
int64_t cross_entropy_scratch_count(int64_t rows);

#endif
