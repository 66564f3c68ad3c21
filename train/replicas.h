/* Do ranks that hold the same shards hold the same weights? */
#ifndef FERRY_TRAIN_REPLICAS_H
#define FERRY_TRAIN_REPLICAS_H

#include "offload/engine.h"

/* After `step`. ERR_INTERNAL on all ranks names a rank that does not, and the first tensor. Reads what the
 * rank holds once, 4 bytes a parameter, and sends 8 bytes a tensor. Collective. */
int replicas_check(struct engine *e, int64_t step);

#endif
