/* Activations in host memory, or kept in part, tried on the best candidate of a choice.
 *
 * The search of choice.c decides between keeping all of a block's activations on the GPU and computing them
 * again. This one takes its best candidate and lets activations of other blocks cross to host memory and back
 * instead (struct plan_policy: hosted_blocks), where that makes the step clearly shorter. What they take on
 * the GPU changes what else fits, so it also moves the other numbers, one at a time, as long as steps get
 * shorter. Then it does the same with parts of activations, on the GPU or in host memory
 * (model/acts_level.h).
 */
#ifndef FERRY_PLACEMENT_CHOICE_HOSTED_H
#define FERRY_PLACEMENT_CHOICE_HOSTED_H

#include "placement/choice_candidate.h"

/* Adds the best candidate with hosted activations to the choice and makes it the best if its step is shorter
 * by CHOICE_HOSTED_GAIN, and if pinning its memory at the start of a run takes no longer than
 * CHOICE_HOSTED_STEPS steps save. Then the same with parts of activations, by CHOICE_LEVELS_GAIN more.
 * is_estimate: candidates may stay estimates. pin_bytes: a second; 0: not known, and only the gain counts.
 * Does nothing without a best candidate, and on a host that computes. ERR_NOMEM. */
#define CHOICE_HOSTED_GAIN 0.02
#define CHOICE_LEVELS_GAIN 0.01
enum { CHOICE_HOSTED_STEPS = 100 };
int choice_host(struct chooser *s, int is_estimate, double pin_bytes);

#endif
