/* The scalars of one AdamW step, and the block size of sums of squares. The optimizer fills the scalars, the
 * devices use them. optim/adamw_state.h defines the arithmetic. */
#ifndef FERRY_OPTIM_ADAMW_STEP_H
#define FERRY_OPTIM_ADAMW_STEP_H

#include <stdint.h>

enum { SUMSQ_BLOCK = 65536 }; /* elements of a gradient whose squares make one partial sum (optim/adamw.h) */

/* The scalars of one step, rounded to the kernels' precision. */
struct adamw_step {
	float one_minus_beta1, one_minus_beta2;
	float decay_factor;             /* 1 - lr * weight_decay */
	float root_factor, root_offset; /* below 0; the offset of a rate of 0 is infinite */
	float clip_scale;               /* at most 1, and 1 when nothing is clipped */
	float least_grad;               /* after clipping: sqrt(FLT_MIN / (1 - beta2)), and a little more */
	uint64_t rounding_key;          /* of stochastic rounding: from the run's seed and Adam's count */
	uint32_t offset_m, offset_r;    /* of adamw_offset_m and _r: from Adam's count, in 2^-32 */
};

#endif
