/* Planned steps of data sets that stay apart. Each is simulated with the largest micro-batches of its
 * own, in the plan that all share; memory is that of the largest of all. */
#ifndef FERRY_CLI_PLAN_SETS_H
#define FERRY_CLI_PLAN_SETS_H

#include "placement/simulate.h"
#include "train/session.h"

struct plan_sets {
	int count; /* 0: steps have rows of all sets */
	struct {
		const char *name;
		struct simulated step;
		int64_t epoch_steps;
	} sets[DATA_SETS_MAX];
	double mean_ms, mean_tokens; /* of an epoch's steps */
};

/* The engine is started. ERR_NOMEM. */
int plan_sets_find(struct plan_sets *out, struct session *s, const struct engine_options *o);

/* A line for each set; the object of each for JSON. */
void plan_sets_say(const struct plan_sets *p, const struct config *c);
json_t *plan_sets_json(const struct plan_sets *p);

#endif
