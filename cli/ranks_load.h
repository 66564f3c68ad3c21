/* Filling the planes of all ranks: each reads its own ranges, or, with load=rank0_only, rank 0 reads all of
 * them.
 *
 * Then nobody but rank 0 opens a file of the model or the checkpoint. It goes through them once, as it would
 * alone, and whatever it has read and checked leaves for the ranks that hold it, in pieces by way of a ring
 * of 4 MiB; what it holds itself goes straight to its place. The others receive into their planes. So a
 * rank's memory is its share and the staging of a load, whatever the size of a tensor or the model.
 */
#ifndef FERRY_CLI_RANKS_LOAD_H
#define FERRY_CLI_RANKS_LOAD_H

#include "cli/session.h"

/* Reads these ranges into the sink, by as many threads as it likes. */
typedef int ranks_fill(
        void *context, const struct plane_sink *sink, const struct plane_range *ranges, int64_t range_count);

/* Collective with load=rank0_only, where `fill` is called on rank 0 alone; all then return the same code. */
int ranks_load(struct session *s, ranks_fill *fill, void *context);

/* Has this rank files? 0 on all but rank 0 with load=rank0_only. */
int ranks_reads_files(const struct config *c);

/* What only rank 0 read reaches the ranks without files; at once 0 where all have them. A block is freed by
 * mem_free and ends with a NUL that is not counted. NULL stays NULL. */
int ranks_share_block(const struct config *c, char **block, int64_t *len_bytes);
int ranks_share_dataset(const struct config *c, struct dataset **d);
int ranks_share_tokens(const struct config *c, struct token_list *ids);

/* The model's table, once rank 0 knows whether its head is tied. */
int ranks_share_model(struct session *s);

/* And how its weights are stored, which frozen ones ask for. */
int ranks_share_formats(struct session *s);

#endif
