/* The eight lines of `ferry plan`: whether it fits, GPU, host, disk, a step and its speed, the time for the
 * data, and the two settings that gain most: one in speed, one in host memory. */
#ifndef FERRY_CLI_PLAN_SUMMARY_H
#define FERRY_CLI_PLAN_SUMMARY_H

#include "cli/plan_sets.h"
#include "placement/gains.h"
#include "placement/host_memory.h"
#include "placement/simulate.h"
#include "train/session.h"

struct plan_summary {
	const struct session *session;
	const struct host_memory *host; /* NULL: the device has no room; only the verdict is printed */
	const struct engine_memory *memory;
	const struct simulated *step;
	const struct plan_sets *sets;
	const struct gains *gains; /* NULL: it does not fit */
	const char *limited_by;
	int64_t checkpoint_bytes;
	int world_size;
};

void plan_summary_print(const struct plan_summary *p);

#endif
