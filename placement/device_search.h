/* Searches settings that need less device memory than those of a run.
 *
 * It plans every combination of settings that do not change the training result: offload, the handling of
 * activations, the prefetch distance, and the size of units. Among those that fit, the one with the shortest
 * simulated step wins; among equals the one with the fewest changes. If none fits, it makes micro-batches
 * smaller and more numerous, which gives the same step, and at last rows shorter.
 */
#ifndef FERRY_PLACEMENT_DEVICE_SEARCH_H
#define FERRY_PLACEMENT_DEVICE_SEARCH_H

#include "placement/device_memory.h"

struct device_found {
	int64_t before_bytes; /* of the arena with the current settings; the least, where a budget may choose
	                       */
	int is_least;         /* it may */
	struct engine_options before; /* the plan of these bytes, on the device of `base` */
	int64_t bytes;                /* with the found settings; if nothing fits, the smallest found */
	struct str settings;          /* " key=value key=value"; str_free */
};

/* Searches within the device's memory beside its reserves. Step times use the machine of placement/rates.h.
 * ERR_NOMEM. */
int device_search(struct device_found *found, const struct config *c, const struct engine_options *base,
        const struct device_memory *device, const struct machine *machine);

/* ERR_FIT: the text has the need, the limit, and settings that fit or the smallest plan. *least becomes the
 * plan of the need. */
int device_search_refuse(struct engine_options *least, const struct device_memory *device,
        const struct config *c, const struct engine_options *options, const struct machine *machine);

#endif
