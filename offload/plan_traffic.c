/* Counts the bytes that a plan moves over the host's memory bus and between ranks. */
#include "device/device.h"
#include "offload/plan.h"

/* Bytes on the bus are those of all arguments in host memory. A copy between host and device moves its bytes
 * over the bus once; work of the CPU reads and writes them. */
static int64_t *bus_part(
        struct plan_memory_traffic *bus, const struct plan_op *op, const struct plan_buffer *b)
{
	switch (op->kind) {
	case PLAN_OP_UPDATE:
		return &bus->update_bytes;
	case PLAN_OP_PICK:
		return &bus->weight_bytes;
	case PLAN_OP_ACCUMULATE:
	case PLAN_OP_FINISH:
	case PLAN_OP_SPREAD:
		return &bus->gradient_bytes;
	case PLAN_OP_FETCH:
	case PLAN_OP_RETURN: /* also returns hi to the host if the device updates it */
		return b->kind == BUFFER_ROWS ||
		                       (plan_kind_is_plane(b->kind) && plane_is_in(plan_kind_plane(b->kind),
		                                                               PLANES_WEIGHT | PLANES_CODED))
		               ? &bus->weight_bytes
		               : &bus->gradient_bytes;
	default:
		return &bus->other_bytes;
	}
}

void plan_memory_traffic_find(struct plan_memory_traffic *bus, const struct plan *p)
{
	*bus = (struct plan_memory_traffic){0};
	for (int i = 0; i < p->op_count; i++) {
		const struct plan_op *op = &p->ops[i];

		for (int a = 0; a < op->arg_count; a++) {
			const struct plan_arg *arg = &p->args[op->first_arg + a];
			const struct plan_buffer *b = &p->buffers[arg->buffer];

			/* skips a unit's sums of squares: a 30000th of its gradient */
			if (b->space == SPACE_DEVICE || (op->queue == QUEUE_CPU && arg->role == ARG_NORM))
				continue;
			*bus_part(bus, op, b) += (arg->reads + arg->writes) * plan_arg_bytes(p, op, arg);
		}
	}
	bus->bytes = bus->weight_bytes + bus->gradient_bytes + bus->update_bytes + bus->other_bytes;
}

void plan_groups_find(
        struct comm_group *shards, struct comm_group *same, int rank, int world_size, int shard_ranks)
{
	*shards = (struct comm_group){.rank = rank % shard_ranks,
	        .size = shard_ranks,
	        .first = rank / shard_ranks * shard_ranks,
	        .stride = 1,
	        .world_size = world_size};
	*same = (struct comm_group){.rank = rank / shard_ranks,
	        .size = world_size / shard_ranks,
	        .first = rank % shard_ranks,
	        .stride = shard_ranks,
	        .world_size = world_size};
}

static void sent_add(int64_t *node_bytes, int64_t *network_bytes, const struct comm_traffic *sent)
{
	*node_bytes += sent->node_bytes;
	*network_bytes += sent->network_bytes;
}

void plan_traffic_find(struct plan_traffic *t, const struct plan *p, const struct comm_links *shards,
        const struct comm_links *replicas)
{
	*t = (struct plan_traffic){0};
	for (int i = 0; i < p->op_count; i++) {
		const struct plan_op *op = &p->ops[i];
		const struct plan_buffer *b = &p->buffers[p->args[op->first_arg].buffer];
		int64_t element_bytes = dtype_bytes(b->dtype);
		struct comm_traffic sent;

		if (op->kind == PLAN_OP_GATHER) {
			comm_traffic_find(&sent, COMM_ALL_GATHER, b->bytes, element_bytes, shards);
			sent_add(&t->gather_node_bytes, &t->gather_network_bytes, &sent);
		} else if (op->kind == PLAN_OP_COLLECT) {
			comm_traffic_find(&sent, COMM_ALL_GATHER,
			        b->bytes / (p->policy.replicas > 1 ? p->policy.replicas : 1), 4, shards);
			sent_add(&t->gather_node_bytes, &t->gather_network_bytes, &sent);
			if (p->policy.replicas > 1) {
				comm_traffic_find(&sent, COMM_ALL_GATHER, b->bytes, 4, replicas);
				sent_add(&t->gather_node_bytes, &t->gather_network_bytes, &sent);
			}
		} else if (op->kind == PLAN_OP_SCATTER) {
			comm_traffic_find(&sent, COMM_REDUCE_SCATTER, b->bytes, element_bytes, shards);
			sent_add(&t->sum_node_bytes, &t->sum_network_bytes, &sent);
		} else if (op->kind == PLAN_OP_REDUCE) {
			comm_traffic_find(&sent, COMM_ALL_REDUCE,
			        p->map->units[op->unit].shard_count * element_bytes, element_bytes, replicas);
			sent_add(&t->sum_node_bytes, &t->sum_network_bytes, &sent);
		}
	}
	t->node_bytes = t->gather_node_bytes + t->sum_node_bytes;
	t->network_bytes = t->gather_network_bytes + t->sum_network_bytes;
}
