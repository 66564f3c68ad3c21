/* Searches settings that need less host memory than those of a run.
 *
 * It takes the smallest set of changes that fits, and among those the one with the shortest simulated step.
 * It plans each with budgets spent as in a run. If all changes together do not fit, micro-batches, steps and
 * rows get smaller (placement/smaller.h). */
#ifndef FERRY_PLACEMENT_HOST_SEARCH_H
#define FERRY_PLACEMENT_HOST_SEARCH_H

#include "placement/device_memory.h"
#include "placement/host_memory.h"

struct host_found {
	int64_t bytes;       /* as need_bytes of struct host_memory; if nothing fits, least_bytes */
	int64_t least_bytes; /* the smallest plan */
	int fits;
	struct str settings; /* " key=value key=value"; str_free */
};

/* asked: the run's options before budgets are spent. ERR_NOMEM. */
int host_search(struct host_found *found, const struct config *c, const struct engine_options *asked,
        const struct device_memory *device, const struct machine *machine);

/* ERR_FIT: the text has the need, the limit, and "set optimizer_state=bf16 (then 50 GiB)" or the
 * smallest plan. */
int host_search_refuse(
        const struct host_memory *host, const struct host_found *found, const struct config *c);

#endif
