/* Private to choice*.c: fills a budget with as much as fits. */
#ifndef FERRY_PLACEMENT_CHOICE_FILL_H
#define FERRY_PLACEMENT_CHOICE_FILL_H

#include "placement/choice_candidate.h"

/* The way of a candidate, which is one of the chooser's. */
const struct way *choice_way_of(const struct chooser *s, const struct choice_candidate *k);

/* Remembers the candidate with the least host memory among those that fit the device; of equals, that of the
 * earlier way, with fewer states. */
void choice_least_keep(struct choice *f, const struct chooser *s, const struct choice_candidate *k);

/* Raises the number of resident weights to the largest that fits. */
int choice_weights_raise(struct chooser *s, struct choice_candidate *k);

/* With this many states, fills the rest of the budget with kept activations, then with weights, and simulates
 * the step. With k->spills at least one block does not keep its activations. *is_fitting is 0 if not even the
 * states fit. */
int choice_states_fill(struct chooser *s, struct choice_candidate *k, int *is_fitting);

#endif
