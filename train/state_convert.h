/* Loads a checkpoint with another optimizer_state than the run's. */
#ifndef FERRY_TRAIN_STATE_CONVERT_H
#define FERRY_TRAIN_STATE_CONVERT_H

#include "checkpoint/load.h"

/* Loads all planes of these ranges into the sink, and converts m and v to `wanted` through fp32
 * (optim/adamw_convert.h), a piece at a time. Errors of checkpoint_read and the sink. */
int state_convert_planes(struct checkpoint *from, const struct plane_sink *sink, enum adamw_state wanted,
        const struct plane_range *ranges, int64_t range_count);

#endif
