/* Settings that need less host memory than those of a run: of the sets of changes with the fewest members
 * that fit, the one with the shortest step on the meta clock. All of them are planned, with the budgets spent
 * as a run would spend them.
 */
#ifndef FERRY_PLACEMENT_HOST_SEARCH_H
#define FERRY_PLACEMENT_HOST_SEARCH_H

#include "placement/device_memory.h"
#include "placement/host_memory.h"

struct host_found {
	int64_t bytes;       /* of the host, as struct host_memory; where nothing fits, least_bytes */
	int64_t least_bytes; /* that was seen */
	int fits;
	struct str settings; /* " key=value key=value"; str_free */
};

/* asked: what the run asked for, before its budgets were spent. ERR_NOMEM. */
int host_search(struct host_found *found, const struct config *c, const struct engine_options *asked,
        const struct device_memory *device, const struct machine *machine);

/* "set optimizer_state=bf16 (then 50 GiB)", or the smallest plan that was found. */
void host_search_text(struct str *out, const struct host_found *found);

/* ERR_FIT: what is needed, what there is, and that text. */
int host_search_refuse(
        const struct host_memory *host, const struct host_found *found, const struct config *c);

#endif
