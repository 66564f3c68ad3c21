/* Filling the planes of all ranks: each reads its own ranges, or, with load=rank0_only, rank 0 reads all of
 * them.
 *
 * Then nobody but rank 0 opens a file of the model or the checkpoint. It goes through them once, as it would
 * alone, and whatever it has read and checked leaves for the ranks that hold it, in pieces by way of a ring
 * (LOAD_RING_PIECES of LOAD_CHUNK_BYTES); what it holds itself goes straight to its place. The others receive
 * into their planes. So a rank's memory is its share and the staging of a load, whatever the size of a tensor
 * or the model.
 */
#ifndef FERRY_TRAIN_RANKS_LOAD_H
#define FERRY_TRAIN_RANKS_LOAD_H

#include "checkpoint/plane_io.h"
#include "config/config.h"
#include "offload/engine.h"

/* Reads these ranges into the sink, by as many threads as it likes. */
typedef int ranks_fill(
        void *context, const struct plane_sink *sink, const struct plane_range *ranges, int64_t range_count);

/* Collective with load=rank0_only, where `fill` is called on rank 0 alone; all then return the same code. */
int ranks_load(struct engine *e, const struct config *c, ranks_fill *fill, void *context);

#endif
