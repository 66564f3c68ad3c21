/* Attention by cuDNN's fused kernels: another way for OP_ATTENTION and OP_ATTENTION_GRAD.
 *
 * attention=cudnn turns it on, for micro-batches in which all documents have the maximum length. To
 * cuDNN these are a batch with only a causal mask (and a window), which its engines know. Documents of other
 * lengths would need a mask for which cuDNN skips no block, and a plan for each length, which takes a second
 * to make. ferry's own kernels compute these. The choice depends on the micro-batch alone, so a resumed run
 * has the bits of one that was not interrupted.
 *
 * Each sort of op (shapes, strides, scale) becomes a graph once, and its plan is kept. A sort without a
 * deterministic engine is remembered too. A backward pass that needs more workspace than there is runs in
 * parts (cuda_dnn_part.h).
 *
 * A cuda_dnn belongs to one stream and the owning thread.
 */
#ifndef FERRY_GPU_CUDA_DNN_ATTENTION_H
#define FERRY_GPU_CUDA_DNN_ATTENTION_H

#include "device/device_attention.h"
#include "gpu/cuda.h"
#include "gpu/cuda_dnn_part.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_dnn;

/* workspace: as in cuda_blas_open, which may share it. *dnn is NULL without an error if cuDNN is not wished
 * for or not there (log_warn says why). Returns 0 or ERR_NOMEM. */
int cuda_dnn_open(
        struct cuda_dnn **dnn, enum device_attention wish, void *workspace, int64_t workspace_bytes);
void cuda_dnn_close(struct cuda_dnn *dnn);

/* 1: not for this op, nothing was queued; 0: queued; or a negative ERR_*. dnn may be NULL. */
int cuda_dnn_attention(struct cuda_dnn *dnn, const struct cuda_launch *at, const struct op *op);

/* For tests: plans the op, or a part of it (NULL: all), for the GPU that `properties` describes in cuDNN's
 * JSON and finds the workspace. That GPU need not be here. Returns 0, or ERR_UNSUPPORTED if there is no plan
 * (the text says why). */
int cuda_dnn_attention_plan(int64_t *workspace_bytes, const struct op *op, const struct cuda_dnn_part *part,
        const char *properties);

#ifdef __cplusplus
}
#endif
#endif
