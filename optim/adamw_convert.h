/* Converts AdamW's state between formats through fp32, for a run that resumes with another optimizer_state.
 * Arrays are plain host memory and start at a block's border. */
#ifndef FERRY_OPTIM_ADAMW_CONVERT_H
#define FERRY_OPTIM_ADAMW_CONVERT_H

#include "optim/adamw.h"

enum adamw_moment { ADAMW_MOMENT_M, ADAMW_MOMENT_V };

/* x[count] = what an update would find in stored[count], and in scale[], one a block (8BIT only).
 * Exact. */
void adamw_state_widen(float *x, const void *stored, const float *scale, int64_t count,
        enum adamw_state state, enum adamw_moment moment);

/* The inverse. F32: unchanged. BF16: nearest, ties to even, flushed; finite values stay finite. 8BIT: as an
 * update stores it (adamw_state.h), but m and v to nearest. */
void adamw_state_narrow(void *stored, float *scale, const float *x, int64_t count, enum adamw_state state,
        enum adamw_moment moment);

#endif
