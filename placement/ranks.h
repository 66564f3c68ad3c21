/* Which ranks a run has, and which of them share a host: pure functions of the configuration, of the
 * described machine (NULL: this one) and of this process's place in the world. `ferry plan` plans for ranks
 * that are not there; every other command has those that were started.
 */
#ifndef FERRY_PLACEMENT_RANKS_H
#define FERRY_PLACEMENT_RANKS_H

#include "comm/world.h"
#include "config/config.h"
#include "offload/engine.h"
#include "placement/machine.h"

/* Ranks of a world of that size on each node: ranks_per_node, or what the machine has room for. */
int ranks_on_node(
        const struct config *c, const struct machine *machine, const struct world *w, int64_t world_size);

/* Ranks that share one host's memory. */
int ranks_of_host(const struct config *c, const struct machine *machine, const struct world *w);

/* Ranks of the run: those that are there, or those that are planned for. */
int ranks_in_world(const struct config *c, const struct machine *machine, const struct world *w);

/* Does this rank read files of the model, the data and the checkpoint? With load=rank0_only only rank 0 does.
 */
int ranks_reads_files(const struct config *c, const struct world *w);

/* How sharding_strategy shares out units among so many ranks, `here` of them on this host: world_size,
 * shard_ranks and keep_gathered of *o. ERR_INPUT. */
int ranks_strategy(
        struct engine_options *o, const struct config *c, const struct world *w, int world_size, int here);

#endif
