/* What crosses the memory bus of the host: every operation's arguments that lie there. A copy between host
 * and device moves its bytes over the bus once, as the device's own accesses; work of the CPU reads and
 * writes. */
#include "offload/plan_parts.h"

static int64_t *bus_part(struct plan_bus *bus, const struct plan_op *op, const struct plan_buffer *b)
{
	switch (op->kind) {
	case PLAN_UPDATE_CPU:
		return &bus->update_bytes;
	case PLAN_ACCUMULATE:
	case PLAN_FINISH:
		return &bus->gradient_bytes;
	case PLAN_FETCH:
	case PLAN_RETURN: /* hi, where the device updates it, goes home */
		return b->plane == STORE_HI || b->plane == STORE_LO ? &bus->weight_bytes
		                                                    : &bus->gradient_bytes;
	default:
		return &bus->other_bytes;
	}
}

void plan_bus_find(struct plan_bus *bus, const struct plan *p)
{
	*bus = (struct plan_bus){0};
	for (int i = 0; i < p->op_count; i++) {
		const struct plan_op *op = &p->ops[i];

		for (int a = 0; a < op->arg_count; a++) {
			const struct plan_arg *arg = &p->args[op->first_arg + a];
			const struct plan_buffer *b = &p->buffers[arg->buffer];

			/* a unit's own sums are a 30000th of its gradient */
			if (b->space == SPACE_DEVICE || (op->queue == QUEUE_CPU && arg->role == ARG_NORM))
				continue;
			*bus_part(bus, op, b) += (arg->reads + arg->writes) * b->bytes;
		}
	}
	bus->bytes = bus->weight_bytes + bus->gradient_bytes + bus->update_bytes + bus->other_bytes;
}
