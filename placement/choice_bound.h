/* Private to choice*.c: what a candidate takes at least, without a plan of it.
 *
 * A step's work is a sum over units and groups. What a unit adds depends only on whether its state, its
 * weights or nothing of it stays on the device; what a group adds, on whether it keeps its activations. So
 * four simulated plans of a way to stream (nothing stays, all weights, all state, all activations) give the
 * work of all its candidates, and from it the bound of their steps (offload/plan_time.h). Bytes that live at
 * a few operations add up in the same way. A candidate whose least memory does not fit is not planned, nor is
 * one whose bound is not shorter than the best step.
 */
#ifndef FERRY_PLACEMENT_CHOICE_BOUND_H
#define FERRY_PLACEMENT_CHOICE_BOUND_H

#include "placement/choice_candidate.h"

struct choice_bound;

/* Also sets the way's guesses of bytes. like: bounds of a way with the same prefetch, or NULL; must outlive
 * *bound. ERR_NOMEM. */
int choice_bound_open(
        struct choice_bound **bound, struct chooser *s, struct way *way, const struct choice_bound *like);
void choice_bound_close(struct choice_bound *bound);

/* Without bounds (NULL): 0 ms, and `most`. limit_bytes 0: none. */
double choice_bound_ms(const struct choice_bound *bound, const struct choice_candidate *k);

/* 0: the candidate does not fit. Without bounds 1. */
int choice_bound_fits(
        const struct choice_bound *bound, const struct choice_candidate *k, int64_t limit_bytes);

/* The most kept blocks with k's states and no weights that may fit, up to `most`; -1: not even none. */
int choice_bound_kept(
        const struct choice_bound *bound, const struct choice_candidate *k, int most, int64_t limit_bytes);

/* The most weights with k's states and kept blocks that may fit, up to `most`. */
int choice_bound_weights(
        const struct choice_bound *bound, const struct choice_candidate *k, int most, int64_t limit_bytes);

/* Bounds of all candidates with k's states, at most k's kept blocks, and weights that may fit the device. The
 * host's memory does not count that of the device where both are one. Without bounds 0; infinite where not
 * even the states may fit. */
struct choice_least {
	double step_ms;
	int64_t host_bytes;
};
struct choice_least choice_bound_least(
        const struct choice_bound *bound, const struct choice_candidate *k, int64_t limit_bytes);

#endif
