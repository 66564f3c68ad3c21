/* The state of AdamW from one form to another, by way of fp32: for a run that goes on with another
 * optimizer_state than it was saved with. Arrays start at a block's border and are plain host memory.
 */
#ifndef FERRY_OPTIM_ADAMW_CONVERT_H
#define FERRY_OPTIM_ADAMW_CONVERT_H

#include "optim/adamw.h"

enum adamw_moment { ADAMW_MOMENT_M, ADAMW_MOMENT_V };

/* x[count] = what an update would find in stored[count], and in scale[], one a block (8BIT only).
 * Exact. */
void adamw_state_widen(float *x, const void *stored, const float *scale, int64_t count,
        enum adamw_state state, enum adamw_moment moment);

/* The other way. F32: as it is. BF16: nearest, ties to even, and flushed; what is finite stays so. 8BIT: as
 * an update stores it (adamw_state.h). */
void adamw_state_narrow(void *stored, float *scale, const float *x, int64_t count, enum adamw_state state,
        enum adamw_moment moment);

#endif
