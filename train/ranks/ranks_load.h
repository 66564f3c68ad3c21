/* Fills the planes of all ranks: each rank reads its own ranges, or rank 0 reads all with load=rank0_only.
 *
 * With rank0_only, only rank 0 opens files of the model or the checkpoint. It reads them once, as with one
 * rank. It sends the checked pieces to the ranks that hold them through a ring (LOAD_RING_PIECES of
 * LOAD_CHUNK_BYTES); its own pieces go directly to their place. The other ranks receive into their planes.
 * So a rank's memory is its share and the staging of a load, for any size of tensors and model.
 */
#ifndef FERRY_TRAIN_RANKS_RANKS_LOAD_H
#define FERRY_TRAIN_RANKS_RANKS_LOAD_H

#include "checkpoint/file/plane_io.h"
#include "config/config.h"
#include "offload/engine.h"

/* With load=rank0_only it is collective: only rank 0 calls `fill`, and all ranks return the same code. */
int ranks_load(struct engine *e, const struct config *c, plane_fill *fill, void *context);

#endif
