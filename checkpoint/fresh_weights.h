/* The weights of a model that has none yet, drawn straight into planes. */
#ifndef FERRY_CHECKPOINT_FRESH_WEIGHTS_H
#define FERRY_CHECKPOINT_FRESH_WEIGHTS_H

#include "checkpoint/plane_io.h"
#include "host/pool.h"
#include "model/model.h"

/* These ranges (NULL: all of everything) into HI and LO of the sink, by the threads of `pool` (NULL: this
 * one). Each element is a pure function of the seed and its place (model_init_value): whoever draws it, it is
 * the same. ERR_NOMEM, the sink's errors. */
int fresh_weights_load(const struct model *model, uint64_t seed, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count, struct pool *pool);

#endif
