/* Initial weights of a new model, drawn directly into planes. */
#ifndef FERRY_CHECKPOINT_FRESH_WEIGHTS_H
#define FERRY_CHECKPOINT_FRESH_WEIGHTS_H

#include "checkpoint/file/plane_io.h"
#include "host/pool.h"
#include "model/model.h"

/* Writes these ranges (NULL: all elements) into HI and LO of the sink, with the threads of `pool` (NULL:
 * this thread). Each element is a pure function of the seed and its place (model_init_value). ERR_NOMEM, the
 * sink's errors. */
int fresh_weights_load(const struct model *model, uint64_t seed, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count, struct pool *pool);

#endif
