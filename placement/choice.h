/* Chooses how to spend a budget: simulates a step of every candidate on the meta clock and takes the fastest.
 *
 * A unit is a group of tensors that is copied together (offload/unit.h). A candidate has five values: units
 * with all of their state on the device, units with only their weights there, blocks that keep their
 * activations, units fetched ahead, and whether other block inputs go to host memory. plan_residency.c
 * chooses the units. For each way to stream (prefetch and inputs), the number of resident states goes through
 * a fixed ladder. With each, as many blocks as fit keep their activations, then as many units as fit their
 * weights. All candidates are simulated. The shortest step wins, and among equals the one with the least
 * traffic over the link.
 *
 * Keeping more does not always make a step shorter, and the best use of a larger budget need not contain that
 * of a smaller one. So the candidates of any smaller budget are candidates too. With each number of states
 * the search removes one weight after another. Without weights it removes one kept block and adds as many
 * weights as then fit. Whether a candidate fits depends only on the budget, so a budget has all candidates of
 * a smaller one. A candidate is skipped only if the bound of its step, or of all candidates below it, is not
 * shorter than the best step. Most are skipped before they are planned (placement/choice_bound.h).
 *
 * So more memory never makes a step longer, with two exceptions. Among steps equal to a millionth the traffic
 * decides. And if bounds are far from the steps (schedule=micro_batch_major of deep models), the search ends
 * after a fixed share of plans.
 */
#ifndef FERRY_PLACEMENT_CHOICE_H
#define FERRY_PLACEMENT_CHOICE_H

#include "base/str.h"
#include "offload/engine.h"
#include "placement/choice_kinds.h"

/* The policy's numbers that a budget may set, 1 or 0. smaller: also try the candidates of smaller budgets,
 * which takes several times as long. */
struct choice_freedom {
	int residency, activations, ahead;
	int smaller;
};

/* Chooses, and writes the choice into o->policy. If no candidate fits, it takes the one with the least host
 * memory, for the message. If none fits the device either, the policy is unchanged. speed: of the simulated
 * machine; all 0: an assumed one. Without training it takes the plan with the least traffic over the link.
 * ERR_NOMEM. */
int choice_find(struct choice *choice, struct engine_options *o, const struct choice_limits *limits,
        const struct choice_freedom *freedom, const struct device_speed *speed);
void choice_free(struct choice *choice);

/* The same from estimates alone, for searches of settings: *k is the best candidate, or the one with the
 * least host memory; device_bytes 0: none fits the device. Its memory is right to about a hundredth. */
int choice_estimate(struct choice_candidate *k, const struct engine_options *o,
        const struct choice_limits *limits, const struct choice_freedom *freedom,
        const struct device_speed *speed);

/* Whether a plan with nothing resident fits by far, in any way to stream; then a choice fits, and need not be
 * made to know it. */
int choice_fits(int *fits, const struct engine_options *o, const struct choice_limits *limits,
        const struct choice_freedom *freedom);

/* The smallest device budget with a valid plan, over every way to stream with nothing resident, and
 * everything resident; the policy in *o becomes that plan's. The layout leaves gaps, so the plan with the
 * most offload need not be the smallest. Of many micro-batches it is an estimate, unless is_exact.
 * ERR_NOMEM. */
int choice_find_least(
        int64_t *least_bytes, struct engine_options *o, const struct choice_freedom *freedom, int is_exact);

/* Explains the choice: one line for the best candidate of each way to stream, with its limit. */
void choice_explain(struct str *out, const struct choice *choice, const struct unit_map *units);

#endif
