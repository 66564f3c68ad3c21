/* Private to choice*.c: from estimates of candidates to plans with all micro-batches. */
#ifndef FERRY_PLACEMENT_CHOICE_WHOLE_H
#define FERRY_PLACEMENT_CHOICE_WHOLE_H

#include "placement/choice_candidate.h"

/* Searches with fewer micro-batches, and then plans the best candidates whole, until one fits. If the
 * estimates were wrong about memory, it searches again with a budget that is corrected by what they missed.
 * The choice then has only candidates that were planned whole. `search` fills the choice of the chooser from
 * s->device_bytes. ERR_NOMEM. */
typedef int choice_search_fn(struct chooser *s, const void *context);
int choice_whole_find(struct chooser *s, choice_search_fn *search, const void *context);

#endif
