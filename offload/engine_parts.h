/* Shared by the engine's files. engine.c plans and steps, engine_planes.c reads and writes planes,
 * engine_memory.c counts, engine_tally.c says how experts were used. */
#ifndef FERRY_OFFLOAD_ENGINE_PARTS_H
#define FERRY_OFFLOAD_ENGINE_PARTS_H

#include "offload/engine.h"
#include "optim/adamw_step.h"

#include <stdatomic.h>

enum { ENGINE_PLANS = PLAN_LOGITS + 1 };

struct engine {
	struct engine_options options;
	const struct unit_map *map;
	struct unit_map *own_map; /* the same, if the options have none */
	struct plan *plans[ENGINE_PLANS];
	struct run *runs[ENGINE_PLANS];
	struct dock dock;
	int64_t space_bytes[SPACE_COUNT];
	dev_addr (*device_planes)[PLANE_COUNT]; /* by unit; DEV_NONE: not on the device */
	int64_t update_count;
	int64_t streamed_bytes; /* copies of a step if nothing stayed on the device; 0: not computed */
	int pending;            /* updates of the last step are pending */
	atomic_int has_codes;   /* 1: codes that products read are those of the weights */
	struct adamw_step adamw[LR_COUNT];
};

/* Any plan of the engine; all have the same planes. */
const struct plan *engine_any_plan(const struct engine *e);

/* Sums what this step's tallies say into the result; engine_tally.c. */
int engine_tally(
        struct engine *e, struct engine_result *result, const struct host_batch *micro, int micro_count);

/* Makes the codes that products read and that UPDATE keeps, if weights were written; engine_planes.c. */
int engine_codes_make(struct engine *e);

/* The stream for calls of the owner between steps. */
struct stream *engine_main_stream(const struct engine *e);

#endif
