/* The weights of a model with its adapters in them: W + s B A for each matrix, in fp32.
 *
 *     merge_open(&merge, model, source, pool);
 *     hf_export_write(&options, merge_model(merge), merge_source(merge));
 *     merge_close(merge);
 *
 * A read computes what it returns; nothing but the adapter of one matrix is kept. The planes of the source do
 * not change.
 */
#ifndef FERRY_CHECKPOINT_HF_MERGE_H
#define FERRY_CHECKPOINT_HF_MERGE_H

#include "checkpoint/file/plane_io.h"
#include "host/pool.h"
#include "model/model.h"

struct merge;

/* model and source must outlive the merge. The threads of pool compute (NULL: this thread); any number
 * gives the same bits. ERR_NOMEM. */
int merge_open(struct merge **merge, const struct model *model, const struct plane_source *source,
        struct pool *pool);

/* The model without adapters, and HI and LO of its tensors. One thread at a time. */
const struct model *merge_model(const struct merge *merge);
const struct plane_source *merge_source(const struct merge *merge);

void merge_close(struct merge *merge);

#endif
