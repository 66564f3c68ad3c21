/* Are rows and prompts within the positions that the model was made for? */
#ifndef FERRY_TRAIN_CONTEXT_LENGTH_H
#define FERRY_TRAIN_CONTEXT_LENGTH_H

#include "config/config.h"
#include "data/dataset.h"
#include "model/model.h"
#include "offload/engine.h"

/* train, eval: rows, NULL where there are none. ERR_INPUT where positions are learned and end before; else a
 * warning: rotary ones go on, but the model was not made for them. */
int context_length_check(const struct model_config *m, const struct config *c, const struct dataset *train,
        const struct dataset *eval, const struct engine_options *o);

#endif
