/* Spends the memory budgets: collects limits, chooses on rank 0, shares the choice. */
#include "placement/budget.h"

#include "placement/host_memory.h"
#include "placement/ranks.h"

#include "base/err.h"
#include "base/mem.h"
#include "comm/world.h"

void budget_freedom(struct choice_freedom *f, const struct config *c, const struct engine_options *o)
{
	const struct plan_policy *p = &o->policy;

	*f = (struct choice_freedom){
	        .residency = 1,
	        .activations = !p->inference && c->activations == CONFIG_ACTIVATIONS_AUTO,
	        .ahead = c->prefetch_units == CONFIG_AUTO && p->forward_prefetch &&
	                 (p->inference || p->backward_prefetch == BACKWARD_PREFETCH_PRE),
	};
}

/* Lowers the limits to the smallest of any rank, so that all ranks can use one choice. */
static int limits_share(struct choice_limits *l)
{
	const struct world *w = world_self();
	double *all = mem_alloc((size_t)w->size * 2, sizeof(*all));
	int rc;

	rc = world_agree(all ? 0 : ERR_NOMEM);
	if (rc) {
		mem_free(all);
		return rc;
	}
	all[2 * w->rank] = (double)l->device_bytes;
	all[2 * w->rank + 1] = (double)l->host_bytes;
	rc = world_sum(all, 2 * w->size);
	for (int r = 0; r < w->size && !rc; r++) {
		l->device_bytes = budget_smaller(l->device_bytes, (int64_t)all[2 * r]);
		l->host_bytes = budget_smaller(l->host_bytes, (int64_t)all[2 * r + 1]);
	}
	mem_free(all);
	return rc;
}

/* Gives rank 0's choice to all ranks. */
static int policy_share(struct plan_policy *p)
{
	int chosen[] = {p->resident_states, p->resident_weights, p->kept_blocks, (int)p->activations,
	        (int)p->backward_prefetch, p->forward_prefetch, p->prefetch_units, p->hosted_blocks,
	        (int)p->kept_level, (int)p->hosted_level};
	int rc = world_broadcast(chosen, sizeof(chosen), 0);

	if (rc)
		return rc;
	p->resident_states = chosen[0];
	p->resident_weights = chosen[1];
	p->kept_blocks = chosen[2];
	p->activations = (enum activation_policy)chosen[3];
	p->backward_prefetch = (enum backward_prefetch)chosen[4];
	p->forward_prefetch = chosen[5];
	p->prefetch_units = chosen[6];
	p->hosted_blocks = chosen[7];
	p->kept_level = (enum acts_level)chosen[8];
	p->hosted_level = (enum acts_level)chosen[9];
	return 0;
}

int budget_is_spent(const struct config *c, int64_t device_budget_bytes)
{
	return c->vram_budget_bytes && (device_budget_bytes || c->ram_budget_bytes != CONFIG_AUTO);
}

static struct choice_limits limits_find(const struct engine_options *o, const struct config *c,
        const struct device_memory *device, const struct machine *machine)
{
	return (struct choice_limits){.device_bytes = o->device_budget_bytes,
	        .host_bytes = host_limit_bytes(c, machine, ranks_of_host(c, machine, world_self())),
	        .load_bytes = host_load_bytes(c, o, machine),
	        .device_is_host = device->is_host};
}

static int choose(struct choice *choice, struct engine_options *o, const struct choice_limits *limits,
        const struct config *c, const struct device_memory *device, enum budget_thoroughness thoroughness)
{
	struct choice_freedom freedom;

	budget_freedom(&freedom, c, o);
	freedom.smaller = thoroughness == BUDGET_AS_A_RUN;
	return choice_find(choice, o, limits, &freedom, &device->rates.speed);
}

int budget_try(struct choice *choice, struct engine_options *o, const struct config *c,
        const struct device_memory *device, const struct machine *machine,
        enum budget_thoroughness thoroughness)
{
	struct choice_limits limits = limits_find(o, c, device, machine);

	*choice = (struct choice){.best = -1};
	return budget_is_spent(c, limits.device_bytes) ? choose(choice, o, &limits, c, device, thoroughness)
	                                               : 0;
}

int budget_estimate(struct choice_candidate *k, const struct engine_options *o, const struct config *c,
        const struct device_memory *device, const struct machine *machine)
{
	struct choice_limits limits = limits_find(o, c, device, machine);
	struct choice_freedom freedom = {0};

	if (budget_is_spent(c, limits.device_bytes))
		budget_freedom(&freedom, c, o);
	return choice_estimate(k, o, &limits, &freedom, &device->rates.speed);
}

int budget_fits(int *fits, const struct engine_options *o, const struct config *c,
        const struct device_memory *device, const struct machine *machine)
{
	struct choice_limits limits = limits_find(o, c, device, machine);
	struct choice_freedom freedom = {0};

	if (budget_is_spent(c, limits.device_bytes))
		budget_freedom(&freedom, c, o);
	return choice_fits(fits, o, &limits, &freedom);
}

int budget_spend(struct choice *choice, struct engine_options *o, const struct config *c,
        struct device_memory *device, const struct machine *machine, enum budget_thoroughness thoroughness)
{
	struct choice_limits limits = limits_find(o, c, device, machine);
	int rc;

	if (!budget_is_spent(c, limits.device_bytes))
		return 0;
	rc = limits_share(&limits); /* collective, so all ranks start to measure together */
	if (!rc)
		rc = world_agree(rates_find(&device->rates, c, machine, device->kind, o));
	if (!rc)
		rc = rates_share(&device->rates);
	if (!rc && !world_self()->rank)
		rc = choose(choice, o, &limits, c, device, thoroughness);
	rc = world_agree(rc);
	return rc ? rc : policy_share(&o->policy);
}

int budget_keep_activations(struct engine_options *o, const struct config *c,
        const struct device_memory *device, const struct machine *machine)
{
	const struct choice_freedom freedom = {.activations = 1};
	const struct device_speed unknown = {0};
	struct choice_limits limits = limits_find(o, c, device, machine);
	struct choice choice = {.best = -1};
	int rc;

	limits.host_bytes -= limits.host_bytes / 4;
	rc = limits_share(&limits);
	if (!rc && !world_self()->rank)
		rc = choice_find(&choice, o, &limits, &freedom, &unknown);
	choice_free(&choice);
	rc = world_agree(rc);
	return rc ? rc : policy_share(&o->policy);
}
