/* The loss and its gradient (device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_LOSS_H
#define FERRY_DEVICE_OP_LOSS_H

#include "base/dtype.h"
#include "device/addr.h"
#include "device/preference.h"

#define OP_LOSS_LIST(ROW)                                                                                    \
	ROW(CROSS_ENTROPY, cross_entropy, cross_entropy)                                                     \
	ROW(PREFERENCE, preference, preference)

/* loss[r] (F32) = logsumexp(logits[r,:]) - logits[r, label[r]]; dlogits[r,:] = (softmax - onehot) *
 * grad_scale * weight[r] in dlogits_dtype, unless dlogits is DEV_NONE. weight: F32 [rows]; DEV_NONE: 1. With
 * cap > 0 both use cap * tanh(l / cap) for each logit l (Gemma 2).
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
};
int64_t cross_entropy_scratch_count(int64_t rows);

/* Weights for the gradients of token losses, from losses of pairs (device/preference.h). Text 2p is the
 * chosen one of pair p, text 2p + 1 the rejected one. For each token of a text weight[t] is minus the
 * derivative of the pair's loss by the text's log probability, which is minus the sum of its token losses in
 * double, added from the first to the last.
 *
 * weight, nll: F32 [tokens], text after text. first: I32 [2 * pairs + 1], where each text begins in them,
 * from 0 to `tokens`; the caller guarantees that each has a token. reference: F64 [2 * pairs], log
 * probabilities. */
struct op_preference {
	dev_addr weight, nll, first, reference;
	int64_t pairs, tokens;
	struct preference loss;
};

#endif
