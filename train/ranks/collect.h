/* Collects whole tensors on rank 0.
 *
 * Rank 0 writes the files with whole tensors: the exported model, a full checkpoint, a dump of gradients. It
 * gets the other ranks' ranges piece by piece.
 */
#ifndef FERRY_TRAIN_RANKS_COLLECT_H
#define FERRY_TRAIN_RANKS_COLLECT_H

#include "checkpoint/file/plane_io.h"
#include "offload/engine.h"

/* Calls `work` on rank 0 with a source of all planes, while the other ranks send their parts. PLANE_GRADIENT
 * reads gradients as fp32. state: the format of AdamW's moments. Collective; returns the same code on all
 * ranks. */
typedef int collect_work(void *context, const struct plane_source *source);
int collect_planes(struct engine *e, enum adamw_state state, collect_work *work, void *context);

#endif
