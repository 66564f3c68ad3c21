/* Settings that need less of the device's memory than those of a run.
 *
 * Every combination of what may be changed without changing what is trained is planned: where state lives,
 * what becomes of activations, how far weights are fetched ahead, how units are cut. Of those that fit, the
 * one with the shortest step on the meta clock wins, and among like ones the one that changes least. Where
 * none fits, micro-batches become smaller and more (the same step in sum), and at last rows shorter.
 */
#ifndef FERRY_PLACEMENT_DEVICE_SEARCH_H
#define FERRY_PLACEMENT_DEVICE_SEARCH_H

#include "placement/device_memory.h"

struct device_found {
	int64_t before_bytes; /* of the arena, as things are */
	int64_t bytes;        /* with the settings; the least that was found, where nothing fits */
	struct str settings;  /* " key=value key=value"; str_free */
};

/* Within what the device has beside its reserves. Steps are of the machine that placement/rates.h says.
 * ERR_NOMEM.
 */
int device_search(struct device_found *found, const struct config *c, const struct engine_options *base,
        const struct device_memory *device, const struct machine *machine);

/* ERR_FIT: what the plan needs, what there is, and which settings fit, or the smallest plan. */
int device_search_refuse(const struct device_memory *device, const struct config *c,
        const struct engine_options *options, const struct machine *machine);

#endif
