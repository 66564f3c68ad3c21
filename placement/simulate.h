/* A training step on the meta device's clock. */
#ifndef FERRY_PLACEMENT_SIMULATE_H
#define FERRY_PLACEMENT_SIMULATE_H

#include "offload/engine.h"
#include "offload/plan_time.h"

struct simulated {
	double step_ms, queue_ms[QUEUE_COUNT];
	double flops;
	int64_t tokens; /* of the step, of all ranks */
};

/* options: those of the engine, on a meta device; every micro-batch has maximum size. The engine must be
 * started. The first step fills the pipeline; the second counts. spans: NULL, or room for the training
 * plan's operations. ERR_NOMEM. */
int simulate_step(struct simulated *result, struct engine *engine, const struct engine_options *options,
        struct run_span *spans);

/* The same for an engine that is not started yet, with the bound of its step. */
int simulate_bound(struct simulated *result, struct plan_time *time, struct engine *engine,
        const struct engine_options *options);

/* This host as a meta device's machine if it computes: from the rates of a current server's thread and the
 * throttle of its copies (0: none). The same in every process, so that all choose alike. */
void simulate_host_speed(struct device_speed *speed, int threads, double host_copy_gbps);

#endif
