/* Decides where each unit's planes live: in host memory, or on the device where it has room. */
#include "base/err.h"
#include "base/mem.h"
#include "offload/plan_parts.h"

/* There are two grades of residency. P is the number of a unit's parameters, with bf16 weights and gradients:
 *
 *   state     takes 14P bytes on the device (12P if UPDATE runs inside backward) besides those of streaming.
 *             The unit never crosses again, which saves 6P bytes of copies a step. The CPU moves 26P bytes of
 *             memory less, the device as many more.
 *   weights   takes 2P bytes. One of two fetches is saved (all but one if each micro-batch has a pass), 2P
 *             bytes a step. The optimizer stays on the host, so the weights are refreshed once, right before
 *             forward.
 *
 * A budget may also buy kept activations (kept_blocks): such a block saves its recomputation, a quarter of
 * its work. Simulation finds the number of each (placement/choice.h); this file decides which units they are.
 *
 * The first unit leads: a step begins with its update and its fetch and ends with its gradient, and nothing
 * hides these. The last unit comes last, because a whole pass hides its traffic. The blocks between are
 * spread evenly (bits reversed), not taken as one run. Streamed units are then between resident ones, and the
 * work of those hides the copies. */

/* All values below `count` from `first` on, in an order in which each prefix is spread evenly. */
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

/* Tables whose rows cross alone save next to nothing by staying, so they come last. */
void plan_residency_order(int *order, const struct unit_map *map)
{
	int count = map->unit_count - map->table_count, end = count;

	order[0] = 0;
	order[count - 1] = count - 1;
	if (count > 2)
		spread(order + 1, 1, count - 2);
	for (int u = 0; u < map->unit_count && map->table_count; u++) {
		if (!map->units[u].row_count)
			continue;
		for (int i = 0; i < count; i++) /* from places among the others to units */
			order[i] += order[i] >= u;
		order[end++] = u;
	}
}

/* Whether resident weights would save a fetch. */
static int weights_spare(const struct builder *b, int u)
{
	const struct plan_policy *o = &b->p->policy;
	int passes = o->order == ORDER_MICRO_BATCH_MAJOR ? o->micro_batches : 1;

	if (o->inference || !o->offload_optimizer || !b->p->map->units[u].trainable)
		return 1; /* they need no refresh */
	return (b->units[u + 1].first_interval - b->units[u].first_interval) * passes > 1;
}

int residency_find(struct builder *b)
{
	const struct plan_policy *o = &b->p->policy;
	int unit_count = b->p->map->unit_count, weights = o->resident_weights;
	int *order = mem_alloc((size_t)unit_count, sizeof(*order));

	if (!order)
		return ERR_NOMEM;
	plan_residency_order(order, b->p->map);
	for (int i = 0; i < unit_count; i++) {
		int u = order[i], state = i < o->resident_states;
		int stays = state || (weights > 0 && weights_spare(b, u));

		weights -= !state && stays;
		b->units[u].home = (struct unit_home){
		        .params = stays ? HOME_DEVICE : o->offload_params,
		        .gradient = state ? HOME_DEVICE : o->offload_gradients,
		        .optimizer = state ? HOME_DEVICE : o->offload_optimizer,
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
		*weights += b->kind == BUFFER_PLANE_HI || b->kind == BUFFER_PLANE_CODES;
		*states += b->kind == BUFFER_PLANE_M;
	}
	*weights -= *states < *weights ? *states : *weights;
}
