/* Where each unit's planes live: in host memory as the policy says, or on the device where it has room.
 *
 * Two grades of residency. P is a unit's parameters, with bf16 weights and gradients:
 *
 *   state     14P bytes on the device (12P where UPDATE runs inside backward) beside what streaming takes.
 *             The unit never crosses again, 6P bytes a step, and the CPU has 26P bytes of memory less to
 *             move, the device as many more.
 *   weights   2P bytes. One fetch of two is spared (all but one where each micro-batch has a pass), 2P
 *             bytes a step. The optimizer stays on the host, so the weights are renewed once, right before
 *             forward.
 *
 * Beside both stand kept activations (kept_blocks): a block that keeps them is not computed twice, a quarter
 * of its work. How many of each a budget is spent on is found by simulation (placement/choice.h); which units
 * they are is said here.
 *
 * The first unit leads, because a step begins by its update and its fetch and ends by its gradient, with
 * nothing to hide under. The last follows last: its traffic has a whole pass to hide in. The blocks between
 * are taken spread evenly (bits reversed), not as one run: streamed units then stand between resident ones,
 * whose work gives their copies time, and the link is never idle for half a pass. */
#include "base/err.h"
#include "base/mem.h"
#include "offload/plan_parts.h"

/* Every value below `count`, each prefix spread over the whole. */
static void spread(int *order, int first, int count)
{
	int bits = 0, n = 0;

	while (1 << bits < count)
		bits++;
	for (int i = 0; i < 1 << bits; i++) {
		int reversed = 0;

		for (int k = 0; k < bits; k++)
			reversed |= (i >> k & 1) << (bits - 1 - k);
		if (reversed < count)
			order[n++] = first + reversed;
	}
}

static void order_find(int *order, int unit_count)
{
	order[0] = 0;
	order[unit_count - 1] = unit_count - 1;
	if (unit_count > 2)
		spread(order + 1, 1, unit_count - 2);
}

/* Would weights that stay spare a fetch? */
static int weights_spare(const struct builder *b, int u)
{
	const struct plan_policy *o = &b->p->policy;
	int passes = o->order == ORDER_MICRO_BATCH_MAJOR ? o->micro_batches : 1;

	if (o->inference || !o->offload_optimizer || !b->p->map->units[u].trainable)
		return 1; /* nothing to renew them with */
	return (b->units[u + 1].first_interval - b->units[u].first_interval) * passes > 1;
}

int residency_find(struct builder *b)
{
	const struct plan_policy *o = &b->p->policy;
	int unit_count = b->p->map->unit_count, weights = o->resident_weights;
	int *order = mem_alloc((size_t)unit_count, sizeof(*order));

	if (!order)
		return ERR_NOMEM;
	order_find(order, unit_count);
	for (int i = 0; i < unit_count; i++) {
		int u = order[i], state = i < o->resident_states;
		int stays = state || (weights > 0 && weights_spare(b, u));

		weights -= !state && stays;
		b->units[u].home = (struct unit_home){
		        .params_on_host = o->offload_params && !stays,
		        .gradients_on_host = o->offload_gradients && !state,
		        .optimizer_on_host = o->offload_optimizer && !state,
		};
	}
	mem_free(order);
	return 0;
}

int plan_residency_is_open(const struct plan_policy *policy)
{
	return policy->offload_params ||
	       (!policy->inference && (policy->offload_gradients || policy->offload_optimizer));
}

void plan_residency_get(const struct plan *p, int *weights, int *states)
{
	*weights = *states = 0;
	for (int i = 0; i < p->buffer_count; i++) {
		const struct plan_buffer *b = &p->buffers[i];

		if (b->space != SPACE_DEVICE)
			continue;
		*weights += b->kind == BUFFER_PLANE_HI;
		*states += b->kind == BUFFER_PLANE_M;
	}
	*weights -= *states < *weights ? *states : *weights;
}
