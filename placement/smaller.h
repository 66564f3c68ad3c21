/* Smaller micro-batches, steps and rows, for searches of settings that fit.
 *
 * Each size is divided. Smaller micro-batches of the same step come first, then steps of fewer micro-batches,
 * then shorter rows:
 *
 *     struct smaller less = SMALLER_NONE;
 *     while (!fits(&less) && smaller_next(&less, base, config, 1))
 *         ;
 */
#ifndef FERRY_PLACEMENT_SMALLER_H
#define FERRY_PLACEMENT_SMALLER_H

#include "base/str.h"
#include "config/config.h"
#include "offload/engine.h"

struct smaller {
	int64_t eval, batch, accumulation, length; /* divisors; 1: as in the run */
};
#define SMALLER_NONE                                                                                         \
	{                                                                                                    \
		.eval = 1, .batch = 1, .accumulation = 1, .length = 1                                        \
	}

/* Sets the sizes of *o to those of *base, divided. */
void smaller_apply(struct engine_options *o, const struct smaller *less, const struct engine_options *base,
        const struct config *c);

/* Moves to the next smaller sizes; 0 if there are none. shorter_steps: steps may have fewer micro-batches. */
int smaller_next(
        struct smaller *less, const struct engine_options *base, const struct config *c, int shorter_steps);

/* Adds " key=value key=value". */
void smaller_text(struct str *out, const struct smaller *less, const struct engine_options *base,
        const struct config *c);

#endif
