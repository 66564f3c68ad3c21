/* What a budget is spent on: chosen by letting a step of every candidate run on the meta clock.
 *
 * A candidate says how many units keep all of their state on the device, and how many their weights alone
 * (offload/plan_residency.c says which), how many blocks keep their activations, whether the inputs of the
 * others leave for host memory, and how many units are fetched ahead. For each way to stream (prefetch times
 * inputs) the number of resident states goes through a fixed ladder; beside each, as many blocks keep their
 * activations as there is room for, then as many units their weights. All of them are simulated, and the
 * shortest step wins; among equals the one that crosses the link least.
 *
 * More that stays does not always make a step shorter, and what fills a larger budget need not contain what
 * filled a smaller one. So whatever fills any smaller budget, down to the byte, is a candidate, too: with
 * each number of states one weight fewer, then another, and with no weights one kept block fewer and as many
 * weights as there is room for then. What fits depends on the budget alone, not on what was tried before; so
 * a budget has all candidates of a smaller one, and none is left out but where the bound of its step, or of
 * all that could come below it, is no shorter than the best step. A step within more memory is therefore
 * never longer, but for the millionth within which the link decides, and but where bounds are so far from the
 * steps (schedule=micro_batch_major of deep models) that a fixed share of plans beyond those that fill the
 * budget ends the search.
 */
#ifndef FERRY_PLACEMENT_CHOICE_H
#define FERRY_PLACEMENT_CHOICE_H

#include "base/str.h"
#include "offload/engine.h"

enum { CHOICE_AHEAD_AS_SET = -1 };

struct choice_candidate {
	int ahead;  /* units fetched ahead; 0: none, CHOICE_AHEAD_AS_SET */
	int spills; /* 1: block inputs leave for host memory */
	int states, kept, weights;
	int weights_stay; /* of these, those that spare a fetch (offload/plan_residency.c) */
	int64_t device_bytes, host_bytes, link_bytes;
	double step_ms, bound_ms; /* 0: not simulated */
	const char *binds;
};

/* Limits of one rank; 0: none. */
struct choice_limits {
	int64_t device_bytes; /* of the arena */
	int64_t host_bytes;
	int64_t load_bytes; /* of host memory, while it loads (placement/host_memory.h) */
	int device_is_host; /* 1: the arena is host memory too */
};

struct choice {
	struct choice_candidate *list; /* those that fit and were simulated */
	int count, cap;
	int best; /* in the list; -1: nothing fits */
	int planned_count;
	struct choice_candidate least; /* of those that fit the device alone, the one that takes least of the
	                               host; device_bytes 0: none */
};

/* Which of the policy's numbers a budget may set, and whether the fillings of smaller budgets are candidates,
 * which takes several times as long: 1 or 0. */
struct choice_freedom {
	int residency, activations, ahead;
	int smaller;
};

/* Chooses, and writes the choice into o->policy; where none fits, the one that takes least of the host, for
 * the sake of what is said then; where none fits the device either, the policy is left as it is. speed: of
 * the machine that the step is simulated on; all 0: one that is assumed. Without training there is no step to
 * simulate, and the plan that moves least over the link is taken. ERR_NOMEM. */
int choice_find(struct choice *choice, struct engine_options *o, const struct choice_limits *limits,
        const struct choice_freedom *freedom, const struct device_speed *speed);
void choice_free(struct choice *choice);

/* The least of the device that a budget of it can be spent on: of every way to stream where nothing stays,
 * and of everything on the device. Placing leaves gaps, so it need not be where the most leaves. ERR_NOMEM.
 */
int choice_find_least(
        int64_t *least_bytes, const struct engine_options *o, const struct choice_freedom *freedom);

/* Why: the best of each kind and what bound them, a line each. */
void choice_explain(struct str *out, const struct choice *choice, const struct unit_map *units);

#endif
