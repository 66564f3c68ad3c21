/* The options of an engine from the configuration, before budgets are spent. */
#ifndef FERRY_PLACEMENT_OPTIONS_H
#define FERRY_PLACEMENT_OPTIONS_H

#include "config/config.h"
#include "offload/engine.h"
#include "placement/machine.h"

/* Sets all that keys decide; the caller fills in device, pool, model and sizes. machine: the planned one;
 * NULL: this one. */
void options_of_config(
        struct engine_options *o, const struct config *c, const struct machine *machine, int micro_batches);

/* Whether blocks are to keep a level of their activations of which this model has none. */
int options_keep_nothing(const struct engine_options *o);

/* The objective that the configuration asks for. */
struct objective_use objective_of_config(const struct config *c);

#endif
