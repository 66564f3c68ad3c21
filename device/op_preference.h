/* What losses of answers compute (device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_PREFERENCE_H
#define FERRY_DEVICE_OP_PREFERENCE_H

#include "device/addr.h"
#include "device/preference.h"

#define OP_PREFERENCE_LIST(ROW)                                                                              \
	ROW(PREFERENCE, preference, preference)                                                              \
	ROW(LOG_RATIO, log_ratio, log_ratio)

/* Weights for the gradients of token losses, from losses of pairs (device/preference.h). Text 2p is the
 * chosen one of pair p, text 2p + 1 the rejected one. For each token of a text weight[t] is minus the
 * derivative of the pair's loss by the token's log probability. A completion's is minus the sum of its token
 * losses in double, added from the first to the last; that of a whole chosen text likewise.
 *
 * weight, nll: F32 [tokens], text after text. first: I32 [2 * pairs + 1], where each text begins in them,
 * from 0 to `tokens`. answer: I32 [2 * pairs], where its completion begins, at `first` or later; the caller
 * guarantees that each has a token. The tokens before it count in the chosen text's own loss alone, and a
 * rejected text has none. reference: F64 [2 * pairs], log probabilities. */
struct op_preference {
	dev_addr weight, nll, first, answer, reference;
	int64_t pairs, tokens;
	struct preference loss;
};

/* The log probability of each text, summed as above, minus its reference. ratio: F32 [texts, 2]; the sum of
 * its two numbers has twice the digits of one. Others: as above, with a text for each of `texts`. */
struct op_log_ratio {
	dev_addr ratio, nll, first, reference;
	int64_t texts, tokens;
};

#endif
