/* The time of a planned step, for `ferry plan`: its lower bound, the resource that limits it, and the busy
 * times of each queue.
 *
 * The bound. A queue does its operations one after the other, and each takes at least as long as alone on the
 * machine. The same holds for bytes on the host's memory bus. With clipping, the updates of a step start
 * after its last gradient has returned. The loss of the next step waits for them and for one fetch of every
 * unit. This gives the cycle
 *
 *     max(backward, return of its gradients) + max(forward, updates, fetches, updates and fetches on the bus)
 *
 * With updates inside backward the updates are in the first term instead: they follow their gradients, and
 * the next forward begins with the unit that updates last. If gradients return in each of several
 * micro-batches, forward is that of the first, and backward is all of compute from its loss on. Some
 * operations must follow the head, by the order of queues or by waits: returns, updates inside backward, and
 * second fetches, because their bytes on the device are in use until then. They share the bus, so the first
 * term is at least the head and their time on the bus. The bound is the maximum of all these. No valid order
 * of the same operations in the same memory is shorter.
 */
#ifndef FERRY_OFFLOAD_PLAN_TIME_H
#define FERRY_OFFLOAD_PLAN_TIME_H

#include "base/str.h"
#include "offload/run.h"

struct plan_time {
	int64_t begin_ns, end_ns; /* of the step */
	/* Times as if each operation ran alone: */
	int64_t work_ns[QUEUE_COUNT], bus_ns;       /* all operations */
	int64_t forward_ns, backward_ns, return_ns; /* compute; gradient copies */
	int64_t update_ns, fetch_ns;                /* AdamW on the CPU; the first fetch of each unit */
	int64_t update_bus_ns, fetch_bus_ns;
	int64_t head_ns, after_bus_ns; /* the (first) head's part of backward_ns; bus time of operations that
	                                  must follow it */
	int64_t sent_ns, exposed_ns;   /* time in collectives; the part during which compute waited */
	int64_t wait_ns[QUEUE_COUNT];  /* time that compute waited, by the queue it waited for */
	int64_t bound_ns;
	const char *binds; /* name of the resource that sets the bound */
};

/* spans: one step of a training plan, in plan order; begin -1 for an operation that did not run. */
void plan_time_find(struct plan_time *time, const struct plan *plan, const struct run_span *spans);

/* The sums of the bound, one by one. plan_time_add adds an operation to the times from work_ns to head_ns;
 * in_forward: no HEAD comes before it. plan_time_bound sets the bound of such sums, or of several added up.
 * Without after_bus_ns it may be lower than that of plan_time_find. */
void plan_time_add(struct plan_time *time, const struct plan *plan, int op, const struct stream_work *work,
        int in_forward);
void plan_time_bound(struct plan_time *time, const struct plan_policy *policy);

/* Draws a line of `columns` characters per queue: '#' busy all the time, '-' part of it, ' ' idle. */
void plan_time_draw(struct str *out, const struct plan_time *time, const struct plan *plan,
        const struct run_span *spans, int columns);

#endif
