/* A model's weights: from its files, except for tensors that another source has, as adapters or what a run
 * trained.
 *
 *     overlay_set(&overlay, import, &top, has, context);
 *     hf_export_write(&options, model, &overlay.source);
 */
#ifndef FERRY_CHECKPOINT_HF_OVERLAY_H
#define FERRY_CHECKPOINT_HF_OVERLAY_H

#include "checkpoint/hf/hf_import.h"

struct overlay {
	struct plane_source source; /* one thread at a time */
	const struct plane_source *top;
	int (*has)(const void *context, int tensor);
	const void *context;
	struct hf_import *files;
};

/* `has` says whether `top` has the tensor. All that is given must outlive the overlay, which stays where it
 * is. */
void overlay_set(struct overlay *overlay, struct hf_import *files, const struct plane_source *top,
        int (*has)(const void *context, int tensor), const void *context);

#endif
