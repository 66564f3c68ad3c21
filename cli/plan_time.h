/* What `ferry plan` says of a step's time: how short it could be at best, what binds it, and who is busy
 * when.
 *
 * The bound. With clipping the updates of a step can start when its last gradient has been returned, and the
 * head of the next step has to wait for them; so, beside each queue's own work, there is the cycle
 *
 *     backward + max(forward, updates)
 *
 * Updates inside backward follow their gradients, and the next forward begins with the unit whose gradient
 * comes last; there the cycle is forward + max(backward, updates). No order of the same operations that keeps
 * these waits is shorter than the largest of all that.
 */
#ifndef FERRY_CLI_PLAN_TIME_H
#define FERRY_CLI_PLAN_TIME_H

#include "base/str.h"
#include "offload/run.h"

struct plan_time {
	int64_t begin_ns, end_ns;        /* of the step */
	int64_t busy_ns[QUEUE_COUNT];    /* in spans of the step */
	int64_t forward_ns, backward_ns; /* of compute's */
	int64_t bound_ns;
	const char *binds; /* what the bound is of */
};

/* spans: of one step of a training plan, in its order; begin -1 where an operation did not run. */
void plan_time_find(struct plan_time *time, const struct plan *plan, const struct run_span *spans);

/* A line of so many columns per queue: '#' where it is busy all the time, '-' some of it, ' ' not at all. */
void plan_time_draw(struct str *out, const struct plan_time *time, const struct plan *plan,
        const struct run_span *spans, int columns);

#endif
