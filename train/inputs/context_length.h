/* Checks rows and prompts against the model's number of positions. */
#ifndef FERRY_TRAIN_INPUTS_CONTEXT_LENGTH_H
#define FERRY_TRAIN_INPUTS_CONTEXT_LENGTH_H

#include "config/config.h"
#include "data/rows/dataset.h"
#include "model/model.h"
#include "offload/engine.h"

/* train, eval: rows, or NULL. ERR_INPUT if a row exceeds learned positions. A warning if it exceeds rotary
 * positions, which continue but were not trained. */
int context_length_check(const struct model_config *m, const struct config *c, const struct dataset *train,
        const struct dataset *eval, const struct engine_options *o);

#endif
