/* The directory that a run writes to, on all ranks: output_dir, or its replacement (run_owner.h). */
#ifndef FERRY_TRAIN_PLACE_H
#define FERRY_TRAIN_PLACE_H

#include "train/train.h"

/* Checks that output_dir still belongs to this run, and updates t->output_dir and the metrics file. If no
 * saved checkpoint is there, sets t->saved_step to -1. Do not call during a save. Collective. ERR_IO: no
 * directory for now. */
int train_place_keep(struct trainer *t);

/* Copies rank 0's path to all ranks; replaces their *path (mem_free). Collective. */
int train_place_share(char **path);

#endif
