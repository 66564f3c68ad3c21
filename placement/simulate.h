/* Simulates a training step on the clock of the meta device.
 *
 * The meta device (device/device.h) computes nothing. It takes an engine's operations and counts the time
 * that each would need at given rates. */
#ifndef FERRY_PLACEMENT_SIMULATE_H
#define FERRY_PLACEMENT_SIMULATE_H

#include "offload/engine.h"
#include "offload/plan_time.h"

struct simulated {
	double step_ms, queue_ms[QUEUE_COUNT];
	double flops;
	int64_t op_count; /* of this rank, and the bytes of device memory that they read and write */
	double op_bytes;
	int64_t tokens; /* of the step, all ranks together */
};

/* Simulates a step of a started engine. options: those of the engine, on a meta device. Every micro-batch has
 * maximum size, and the updates of the step before run too. spans: NULL, or room for the
 * training plan's operations. ERR_NOMEM. */
int simulate_step(struct simulated *result, struct engine *engine, const struct engine_options *options,
        struct run_span *spans);

/* The same for an engine that is not started yet; *time has the bound of its step. */
int simulate_bound(struct simulated *result, struct plan_time *time, struct engine *engine,
        const struct engine_options *options);

/* Assumed rates of this host as the device: from the rates of one thread and the throttle of copies (0:
 * none). They are the same in every process, so that all choose alike. */
void simulate_host_speed(struct device_speed *speed, int threads, double host_copy_gbps);

#endif
