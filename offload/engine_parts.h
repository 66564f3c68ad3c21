/* What the files of the engine share: engine.c plans and steps, engine_planes.c reads and writes. */
#ifndef FERRY_OFFLOAD_ENGINE_PARTS_H
#define FERRY_OFFLOAD_ENGINE_PARTS_H

#include "offload/engine.h"
#include "optim/adamw_step.h"

enum { ENGINE_PLANS = PLAN_LOGITS + 1 };

struct engine {
	struct engine_options options;
	struct unit_map *map;
	struct plan *plans[ENGINE_PLANS];
	struct run *runs[ENGINE_PLANS];
	struct dock dock;
	int64_t space_bytes[SPACE_COUNT];
	int64_t update_count;
	int64_t streamed_bytes; /* across the link each step if nothing stayed on the device; 0: not asked for
	                         */
	int pending;            /* updates of the last step wait to be run */
	struct adamw_step adamw;
};

/* A plan of the engine: all have the same planes. */
const struct plan *engine_any_plan(const struct engine *e);

/* Of what the owner asks for between steps. */
struct stream *engine_main_stream(const struct engine *e);

#endif
