/* Where a run writes, on all ranks: output_dir, or wherever it had to go since (run_owner.h). */
#ifndef FERRY_TRAIN_PLACE_H
#define FERRY_TRAIN_PLACE_H

#include "train/train.h"

/* Finds out whether output_dir is still this run's; t->output_dir and the rows go to where it writes from
 * here on. Where nothing of what was saved is there, t->saved_step is -1. No save is under way. Collective.
 * ERR_IO: nowhere for now. */
int train_place_keep(struct trainer *t);

/* Rank 0's path reaches all; *path (mem_free) of the others is replaced. Collective. */
int train_place_share(char **path);

#endif
