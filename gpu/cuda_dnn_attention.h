/* Attention by cuDNN's fused kernels: another way for OP_ATTENTION and OP_ATTENTION_GRAD.
 *
 * Used where FERRY_ATTENTION=cudnn asks for it, for micro-batches whose documents are all as long as they can
 * be: those are a batch to cuDNN, with nothing but the causal mask (and the window) that its engines know.
 * Documents of other lengths would be a mask for which it skips no block, and each length a plan of its own,
 * which takes a second to make; they are for our kernels. Which it is depends on the micro-batch alone, so a
 * run that goes on has the bits of one that was not interrupted. Each sort of op (shapes, strides, scale)
 * becomes a graph once, and its plan is kept; what cuDNN has no deterministic engine for is remembered as not
 * for it. A backward that needs more workspace than there is runs in parts (cuda_dnn_part.h).
 *
 * A cuda_dnn belongs to one stream and the owning thread.
 */
#ifndef FERRY_GPU_CUDA_DNN_ATTENTION_H
#define FERRY_GPU_CUDA_DNN_ATTENTION_H

#include "gpu/cuda.h"
#include "gpu/cuda_dnn_part.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_dnn;

/* workspace as of cuda_blas_open, whose it may be. *dnn is NULL, and no error, where FERRY_ATTENTION is not
 * "cudnn" or there is no cuDNN (log_warn says why). 0 or ERR_NOMEM. */
int cuda_dnn_open(struct cuda_dnn **dnn, void *workspace, int64_t workspace_bytes);
void cuda_dnn_close(struct cuda_dnn *dnn);

/* 1: not for this op, nothing was queued; 0: queued; or a negative ERR_*. dnn may be NULL. */
int cuda_dnn_attention(struct cuda_dnn *dnn, const struct cuda_launch *at, const struct op *op);

/* For tests: whether there is a plan for the op, or such a part of it (NULL: all), on the GPU of which
 * cuDNN's JSON tells, which need not be here, and how much workspace it takes. 0, ERR_UNSUPPORTED (the text
 * says why). */
int cuda_dnn_attention_plan(int64_t *workspace_bytes, const struct op *op, const struct cuda_dnn_part *part,
        const char *properties);

#ifdef __cplusplus
}
#endif
#endif
