/* Going on from a checkpoint whose optimizer state is kept in another form than the run's.
 */
#ifndef FERRY_TRAIN_STATE_CONVERT_H
#define FERRY_TRAIN_STATE_CONVERT_H

#include "checkpoint/load.h"

/* All planes of these ranges into the sink, m and v in the form `wanted`, by way of fp32
 * (optim/adamw_convert.h). A piece at a time; ERR_* as checkpoint_read and the sink give them. */
int state_convert_planes(struct checkpoint *from, const struct plane_sink *sink, enum adamw_state wanted,
        const struct plane_range *ranges, int64_t range_count);

#endif
