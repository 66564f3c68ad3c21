/* The graphs of attention, forward and backward, for cuDNN (gpu/cuda_dnn.h explains graphs). */
#ifndef FERRY_GPU_CUDA_DNN_GRAPH_H
#define FERRY_GPU_CUDA_DNN_GRAPH_H

#include "gpu/cuda_dnn.h"

#ifdef FERRY_CUDNN

/* The tensors for which a plan gets addresses. */
enum dnn_uid {
	UID_Q = 1,
	UID_K,
	UID_V,
	UID_OUT,
	UID_LSE,
	UID_SCALE,
	UID_MASKED,
	UID_WINDOW,
	UID_DOUT,
	UID_DQ,
	UID_DK,
	UID_DV,
	UID_DELTA,
	UID_ONE,
	UID_END
};

/* The parameters of a graph: `documents` of `tokens` each; lse has lse_stride numbers per token. */
struct dnn_sort {
	int64_t documents, tokens, heads, kv_heads, head_dim, window, qkv_stride, q_head_stride,
	        kv_head_stride, out_stride, lse_stride;
	float scale;
	int32_t is_grad;
};

/* The plan of the graph of such a sort. Errors as dnn_plan_open. */
int dnn_sort_plan(struct dnn_plan *plan, const struct cudnn *f, const struct dnn_sort *s,
        const struct dnn_target *target, int64_t workspace_bytes_max);

#endif
#endif
