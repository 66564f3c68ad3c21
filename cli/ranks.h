/* Several ranks, as the commands see them.
 *
 * Every rank walks through the same command with the same configuration. Rank 0 talks, writes metrics and
 * decides nothing alone; what only one of them could know (a signal, a failed file) is agreed on. Each rank
 * owns a shard of every unit and so a range of most tensors. What needs whole tensors (the exported model) is
 * written by rank 0, which asks the others for their ranges piece by piece. All functions are collective,
 * from the program's own thread, and return the same code on all ranks; in a world of one they return at
 * once.
 */
#ifndef FERRY_CLI_RANKS_H
#define FERRY_CLI_RANKS_H

#include "checkpoint/save.h"
#include "cli/config.h"
#include "cli/session.h"

/* Is this another program or another configuration than rank 0's? ERR_INPUT on all ranks names the rank and
 * the first difference. (cli/ranks_agree.c, as the next) */
int ranks_check(const struct config *c);

/* Ranks of a world of that size on each node: ranks_per_node, or what the machine (NULL: this one) has room
 * for. */
int ranks_on_node(const struct config *c, const struct machine *machine, int64_t world_size);

/* Ranks that share one host's memory. */
int ranks_of_host(const struct config *c, const struct machine *machine);

/* Ranks of the run: those that are there, or those that are planned for. */
int ranks_in_world(const struct config *c, const struct machine *machine);

/* And what was opened: are the model, the checkpoint (NULL: none is resumed) and the rows rank 0's? Compared
 * are all token ids, labels and orders of rows; of the model its config.json and, for each file of weights,
 * length, header and 32 blocks of 4 KiB; of a checkpoint its manifest, which has a checksum for every block.
 * `code` is what opening them came to on this rank. With load=rank0_only there is nothing to compare. */
struct checkpoint;
int ranks_check_inputs(
        const struct config *c, const struct session *s, const struct checkpoint *resumed, int code);

/* How sharding_strategy shares out units among so many ranks, `here` of them on this host. ERR_INPUT. */
int ranks_strategy(struct engine_options *o, const struct config *c, int world_size, int here);

/* Which ranks each host has, by its name; nothing where one has all. */
int ranks_hosts(struct str *text);

/* The ranges of tensors that this rank's shards hold, in the order of the table (mem_free). RANKS_WRITE: of
 * what several ranks hold, this one's part of the writing. */
enum ranks_purpose { RANKS_READ, RANKS_WRITE };
int ranks_held(struct plane_range **ranges, int64_t *range_count, const struct unit_map *map,
        enum ranks_purpose purpose);

/* Collective parts of saving. */
struct checkpoint_world ranks_checkpoint_world(void);

/* The callbacks of a device whose ranks must find each other; static. */
const struct device_bootstrap *ranks_bootstrap(void);

/* On rank 0 calls work with a source of all planes, whoever holds them; the others answer
 * meanwhile. PLANE_GRADIENT in place of a plane reads gradients, as fp32. */
typedef int ranks_work(void *context, const struct plane_source *source);
int ranks_collect(struct session *s, ranks_work *work, void *context);

/* Do ranks that hold the same shards hold the same weights after that step? ERR_INTERNAL on all ranks names
 * one that does not, and the first tensor. Reads what the rank holds once, 4 bytes a parameter, and sends 8
 * bytes a tensor. */
int ranks_check_replicas(struct session *s, int64_t step);

/* The signal that any rank got, or 0; the same on all. */
int ranks_signal(int *signal);

#endif
