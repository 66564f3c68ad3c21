/* What `ferry plan` says of a step's time: how short it could be at best, what binds it, and who is busy
 * when.
 *
 * The bound. Each queue's work, taken as long as it takes with the machine for itself, is one after the
 * other; what crosses the host's memory bus is, too. With clipping the updates of a step can start when its
 * last gradient has been returned, and the loss of the next step has to wait for them, and for every unit to
 * be fetched once; so there is the cycle
 *
 *     max(backward, return of its gradients) + max(forward, updates, fetches, updates and fetches on the bus)
 *
 * Updates inside backward follow their gradients, and the next forward begins with the unit whose gradient
 * comes last; there they are in the first term. (Where gradients return in each of several micro-batches,
 * forward is that of the first, and backward is all of compute from its loss on.) What has to follow the
 * head, by the order of queues and by waits, shares the bus: returns, updates inside backward, and second
 * fetches, whose bytes on the device others have until then. So the first term is no less than the head and
 * all of that on the bus. No order of the same operations that keeps what they need of each other, in as much
 * memory, is shorter than the largest of all that.
 */
#ifndef FERRY_OFFLOAD_PLAN_TIME_H
#define FERRY_OFFLOAD_PLAN_TIME_H

#include "base/str.h"
#include "offload/run.h"

struct plan_time {
	int64_t begin_ns, end_ns; /* of the step */
	/* Alone: */
	int64_t work_ns[QUEUE_COUNT], bus_ns;       /* all of it */
	int64_t forward_ns, backward_ns, return_ns; /* compute's; gradients on their way to the host */
	int64_t update_ns, fetch_ns;                /* the CPU's; the first fetch of each unit */
	int64_t update_bus_ns, fetch_bus_ns;
	int64_t head_ns, after_bus_ns; /* of backward_ns the (first) head; on the bus what has to follow it */
	int64_t sent_ns, exposed_ns;   /* in collectives; of it while compute stood still */
	int64_t wait_ns[QUEUE_COUNT];  /* how long compute stood still, by who let it wait */
	int64_t bound_ns;
	const char *binds; /* what the bound is of */
};

/* spans: of one step of a training plan, in its order; begin -1 where an operation did not run. */
void plan_time_find(struct plan_time *time, const struct plan *plan, const struct run_span *spans);

/* A line of so many columns per queue: '#' where it is busy all the time, '-' some of it, ' ' not at all. */
void plan_time_draw(struct str *out, const struct plan_time *time, const struct plan *plan,
        const struct run_span *spans, int columns);

#endif
