/* What ranks compare at the start, so that one with something else than rank 0 is named before anything is
 * written. Collective; the same code on all ranks.
 */
#ifndef FERRY_TRAIN_RANKS_COMPARE_H
#define FERRY_TRAIN_RANKS_COMPARE_H

#include "checkpoint/load.h"
#include "train/session.h"

/* Is this another program or another configuration than rank 0's? ERR_INPUT on all ranks names the rank and
 * the first difference. */
int ranks_check(const struct config *c);

/* And what was opened: are the model, the checkpoint (NULL: none is resumed) and the rows rank 0's? Compared
 * are all token ids, labels and orders of rows; of the model its config.json and, for each file of weights,
 * length, header and 32 blocks of 4 KiB; of a checkpoint its manifest, which has a checksum for every block.
 * `code` is what opening them came to on this rank. With load=rank0_only there is nothing to compare. */
int ranks_check_inputs(
        const struct config *c, const struct session *s, const struct checkpoint *resumed, int code);

#endif
