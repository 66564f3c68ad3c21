/* The ranks of a run and of a host. A rank is one process of a run, the world all of them. These are pure
 * functions of the configuration, the described machine (NULL: this one) and this process's place in the
 * world. `ferry plan` plans for ranks that do not exist; other commands use the started ranks. */
#ifndef FERRY_PLACEMENT_RANKS_H
#define FERRY_PLACEMENT_RANKS_H

#include "comm/world.h"
#include "config/config.h"
#include "offload/engine.h"
#include "placement/machine.h"

/* Ranks on each node in a world of this size: ranks_per_node, or as many as the machine allows. */
int ranks_on_node(
        const struct config *c, const struct machine *machine, const struct world *w, int64_t world_size);

/* Ranks that share one host's memory. */
int ranks_of_host(const struct config *c, const struct machine *machine, const struct world *w);

/* Number of ranks of the run, started or planned. */
int ranks_in_world(const struct config *c, const struct machine *machine, const struct world *w);

/* 1 if this rank reads the files of model, data and checkpoint. With load=rank0_only only rank 0 does. */
int ranks_reads_files(const struct config *c, const struct world *w);

/* Applies sharding_strategy for world_size ranks, `here` of them on this host: sets world_size, shard_ranks
 * and keep_gathered of *o. ERR_INPUT. */
int ranks_strategy(
        struct engine_options *o, const struct config *c, const struct world *w, int world_size, int here);

#endif
