/* A model's weights: from its files, except for tensors that another source has, as adapters or
 * what a run trained.
 *
 *     overlay_open(&overlay, dir, model, &top, has);
 *     hf_export_write(&options, model, overlay_source(overlay));
 *     overlay_close(overlay);
 */
#ifndef FERRY_CHECKPOINT_OVERLAY_H
#define FERRY_CHECKPOINT_OVERLAY_H

#include "checkpoint/hf_import.h"

struct overlay;

/* `has` says whether `top` has the tensor; it gets top's context. `top` and the model must outlive the
 * overlay. Errors of hf_import_open. */
int overlay_open(struct overlay **overlay, const char *dir, struct model *model,
        const struct plane_source *top, int (*has)(void *context, int tensor));

/* The model's files. */
const struct hf_import *overlay_import(const struct overlay *overlay);

/* One thread at a time. */
const struct plane_source *overlay_source(const struct overlay *overlay);

void overlay_close(struct overlay *overlay);

#endif
