/* What single settings would gain: plans and simulates a step with each, with budgets spent as in a run, or
 * more roughly where only speed counts: the run is then as fast or faster.
 *
 * Tried are more micro-batches a step, more rows in each, and, if the run takes much of the host's memory,
 * 8-bit optimizer state and bf16 gradients. A run that quantizes its base (base_format), or whose products
 * are FP8 (compute_dtype), is tried in bf16, which loses no quality. A setting that is in force already, or
 * that does not fit, is left out. A larger value is tried only if the smaller one gained and left something
 * to gain. So the search takes a few plans.
 */
#ifndef FERRY_PLACEMENT_GAINS_H
#define FERRY_PLACEMENT_GAINS_H

#include "placement/device_memory.h"

struct gain {
	char setting[64];                         /* "optimizer_state=8bit" */
	double step_ms, compute_ms, tokens_per_s; /* compute_ms: its queue's part of step_ms */
	int64_t host_bytes, device_bytes;         /* as of struct plan_trial */
};

enum { GAINS_MAX = 8 };
struct gains {
	struct gain now, list[GAINS_MAX];
	int count;
	/* In the list, -1: none gains 5 %. The setting with the most tokens a second, or the first within a
	 * tenth of it; the one with the least host memory that keeps nine tenths of the speed. */
	int fastest, smallest;
	int as_fast; /* bf16 in place of codes, which fits and is as fast to 5 %; -1: not so */
};

struct gains_from {
	const struct config *config;
	const struct engine_options *asked; /* before budgets are spent */
	const struct device_memory *device;
	const struct machine *machine;
	struct gain now;          /* of the plan with these */
	int keeps_activations;    /* on a CPU, as many as fit (budget_keep_activations) */
	int64_t host_limit_bytes; /* 0: unknown */
	int64_t row_count;        /* of the data, which a step must not exceed; 0: no data */
};

/* ERR_NOMEM. */
int gains_find(struct gains *gains, const struct gains_from *from);

#endif
