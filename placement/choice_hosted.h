/* Activations in host memory, tried on the best candidate of a choice.
 *
 * The search of choice.c decides between keeping a block's activations on the GPU and computing them again.
 * This one takes its best candidate and lets activations of other blocks cross to host memory and back
 * instead (struct plan_policy: hosted_blocks), where that makes the step clearly shorter. What they take on
 * the GPU changes what else fits, so it also moves the other numbers, one at a time, as long as steps get
 * shorter.
 */
#ifndef FERRY_PLACEMENT_CHOICE_HOSTED_H
#define FERRY_PLACEMENT_CHOICE_HOSTED_H

#include "offload/engine.h"
#include "placement/choice_kinds.h"

/* Adds the best candidate with hosted activations to the list and makes it the best if its step is shorter by
 * CHOICE_HOSTED_GAIN. residency: units may stay on the GPU. Does nothing without a best candidate, and on a
 * host that computes. ERR_NOMEM. */
#define CHOICE_HOSTED_GAIN 0.02
int choice_host(struct choice *choice, const struct engine_options *o, const struct choice_limits *limits,
        int residency, const struct device_speed *speed);

#endif
