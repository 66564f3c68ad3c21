/* Tries divided experts where a budget is spent. */
#include "train/session_parts.h"

#include "base/err.h"
#include "comm/world.h"
#include "model/experts_parts.h"
#include "placement/budget.h"

/* Parts are worth a try if a step with whole blocks takes so much longer than it must, and worth their work
 * if theirs is shorter by this share. */
static const double tried_above = 1.05, worth = 0.98;

/* NULL: nothing fits, or another rank chooses. */
static const struct choice_candidate *best_of(const struct choice *choice)
{
	return choice->count && choice->best >= 0 ? &choice->list[choice->best] : NULL;
}

static int is_near_bound(const struct choice *choice)
{
	const struct choice_candidate *best = best_of(choice);

	return best && best->step_ms < tried_above * best->bound_ms;
}

static int is_better(const struct choice *divided, const struct choice *whole)
{
	const struct choice_candidate *a = best_of(divided), *b = best_of(whole);

	return !b || (a && a->step_ms < worth * b->step_ms);
}

/* Divides the experts on every rank if rank 0 finds that better. `whole`: the options before the budget was
 * spent. */
static int parts_take(
        struct session *s, struct engine_options *o, const struct engine_options *whole, int64_t part)
{
	struct engine_options divided_options = *whole;
	struct choice divided = {.best = -1};
	int takes, rc = model_experts_divide(s->model, part);

	if (!rc)
		rc = budget_spend(
		        &divided, &divided_options, s->config, &s->device_memory, s->machine, BUDGET_ROUGHLY);
	takes = !rc && is_better(&divided, &s->choice);
	if (!rc)
		rc = world_broadcast(&takes, sizeof(takes), 0);
	if (!rc && takes) {
		choice_free(&s->choice);
		s->choice = divided;
		*o = divided_options;
		return 0;
	}
	choice_free(&divided);
	return rc ? rc : model_experts_divide(s->model, 0);
}

/* Ranks sum the squares of their shards' gradients, so the last bits of the norm depend on where units
 * end. Where ranks share experts that train, their units must not depend on budgets and offload: they are
 * divided in every run. Adapters of experts are in the block's own unit. */
static int must_divide(const struct session *s, const struct engine_options *o)
{
	int trains = 0;

	for (int t = 0; t < s->model->tensor_count; t++)
		trains |= s->model->tensors[t].trainable && role_is_of_each_expert(s->model->tensors[t].role);
	return trains && (o->shard_ranks ? o->shard_ranks : o->world_size) > 1;
}

int session_spend(struct session *s, struct engine_options *o)
{
	const struct engine_options before = *o;
	int is_divided = must_divide(s, o);
	int64_t part;
	int rc = model_experts_divide(s->model, is_divided ? model_experts_part_for(s->model) : 0);

	if (rc || !budget_is_spent(s->config, o->device_budget_bytes))
		return rc;
	rc = budget_spend(&s->choice, o, s->config, &s->device_memory, s->machine, BUDGET_AS_A_RUN);
	part = is_near_bound(&s->choice) || is_divided ? 0 : model_experts_part_for(s->model);
	if (!rc)
		rc = world_broadcast(&part, sizeof(part), 0);
	return rc || !part ? rc : parts_take(s, o, &before, part);
}
