/* Whole tensors on rank 0, whoever holds them.
 *
 * What needs whole tensors (the exported model, a full checkpoint, a dump of gradients) is written by rank 0,
 * which asks the others for their ranges piece by piece.
 */
#ifndef FERRY_TRAIN_COLLECT_H
#define FERRY_TRAIN_COLLECT_H

#include "checkpoint/plane_io.h"
#include "offload/engine.h"

/* On rank 0 calls work with a source of all planes; the others answer meanwhile. PLANE_GRADIENT in place of
 * a plane reads gradients, as fp32. state: how the run keeps AdamW's moments. Collective; the same code on
 * all ranks. */
typedef int collect_work(void *context, const struct plane_source *source);
int collect_planes(struct engine *e, enum adamw_state state, collect_work *work, void *context);

#endif
