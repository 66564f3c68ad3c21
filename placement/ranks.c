/* Counts ranks, and finds those that share a host or a node. */
#include "placement/ranks.h"

#include "base/err.h"

int ranks_on_node(
        const struct config *c, const struct machine *machine, const struct world *w, int64_t world_size)
{
	if (c->ranks_per_node != CONFIG_AUTO)
		return (int)(world_size != CONFIG_AUTO && world_size < c->ranks_per_node ? world_size
		                                                                         : c->ranks_per_node);
	if (machine)
		return (int)machine_ranks_here(machine, world_size);
	return c->verb == VERB_PLAN ? (int)(world_size == CONFIG_AUTO ? 1 : world_size) : w->local_size;
}

int ranks_of_host(const struct config *c, const struct machine *machine, const struct world *w)
{
	return machine || c->verb == VERB_PLAN ? ranks_on_node(c, machine, w, c->ranks) : w->local_size;
}

int ranks_in_world(const struct config *c, const struct machine *machine, const struct world *w)
{
	if (c->verb != VERB_PLAN)
		return w->size;
	if (c->ranks != CONFIG_AUTO)
		return (int)c->ranks;
	return machine ? (int)machine_ranks_here(machine, CONFIG_AUTO) : 1;
}

int ranks_strategy(
        struct engine_options *o, const struct config *c, const struct world *w, int world_size, int here)
{
	int node = c->ranks_per_node == CONFIG_AUTO ? here : (int)c->ranks_per_node;

	switch (c->sharding_strategy) {
	case CONFIG_SHARDING_NO_SHARD:
		node = 1;
		break;
	case CONFIG_SHARDING_HYBRID_SHARD:
	case CONFIG_SHARDING_HYBRID_SHARD_ZERO2:
		break;
	default:
		node = world_size;
	}
	if (node > world_size || world_size % node)
		return err_set(ERR_INPUT,
		        "sharding_strategy=%s: %d ranks cannot form groups of %d; start as many ranks on "
		        "each host or set ranks_per_node",
		        config_text(c, "sharding_strategy"), world_size, node);
	if (node > 1 && node < world_size && w->size > 1 && c->ranks_per_node == CONFIG_AUTO &&
	        w->rank % node != w->local_rank)
		return err_set(ERR_INPUT,
		        "sharding_strategy=%s: ranks of a host must be numbered one after the other (mpirun "
		        "--map-by slot, srun -m block)",
		        config_text(c, "sharding_strategy"));
	o->world_size = world_size;
	o->shard_ranks = node;
	o->policy.keep_gathered = c->sharding_strategy == CONFIG_SHARDING_SHARD_GRAD_OP ||
	                          c->sharding_strategy == CONFIG_SHARDING_HYBRID_SHARD_ZERO2;
	return 0;
}

int ranks_reads_files(const struct config *c, const struct world *w)
{
	return c->load != CONFIG_LOAD_RANK0_ONLY || w->size == 1 || !w->rank;
}
