/* The options of an engine, as the configuration asks for them and before budgets are spent. */
#ifndef FERRY_PLACEMENT_OPTIONS_H
#define FERRY_PLACEMENT_OPTIONS_H

#include "config/config.h"
#include "offload/engine.h"
#include "placement/machine.h"

/* The policy. Device, pool, model and sizes are the caller's to fill in. machine: that is planned for; NULL:
 * this one. */
void options_of_config(
        struct engine_options *o, const struct config *c, const struct machine *machine, int micro_batches);

#endif
