/* Checks that ranks with the same shards have the same weights. */
#ifndef FERRY_TRAIN_RANKS_REPLICAS_H
#define FERRY_TRAIN_RANKS_REPLICAS_H

#include "offload/engine.h"

/* Call after `step`. ERR_INTERNAL on all ranks names a rank that differs and the first tensor. Reads the
 * rank's weights once, 4 bytes a parameter, and sends 8 bytes a tensor. Collective. */
int replicas_check(struct engine *e, int64_t step);

#endif
