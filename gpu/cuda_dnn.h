/* Graphs of cuDNN 9: tensors, operations between them, and the plan that cuDNN makes of them.
 *
 * cuDNN gets a computation as a graph of small operations and searches an engine that runs all of it as one
 * kernel. A graph is built in order. After the first failure later calls do nothing, and dnn_plan_open
 * reports it. The graph owns its descriptors until it is closed.
 *
 * In a build without cudnn.h, or for the emulator, none of this exists.
 */
#ifndef FERRY_GPU_CUDA_DNN_H
#define FERRY_GPU_CUDA_DNN_H

#include "gpu/cuda.h"

#include "gpu/cuda_library.h"

#if __has_include(<cudnn.h>) && !defined(FERRY_SIMT)
#include <cudnn.h>
#if CUDNN_VERSION >= 90800 /* needed to plan graphs from a description of a GPU */
#define FERRY_CUDNN 1
#endif
#endif

#ifdef FERRY_CUDNN

struct cudnn {
	CUDNN_FUNCTIONS(CUDA_LIBRARY_FIELD)
};

typedef cudnnBackendDescriptor_t dnn_tensor;

enum { DNN_OPERATIONS_MAX = 48, DNN_DESCRIPTORS_MAX = 192, DNN_RANK = 4 };

struct dnn_graph {
	const struct cudnn *f;
	cudnnBackendDescriptor_t operations[DNN_OPERATIONS_MAX], all[DNN_DESCRIPTORS_MAX];
	int operation_count, all_count;
	int64_t virtual_count; /* tensors without memory are numbered from -1 down */
	cudnnStatus_t status;
	const char *failed; /* the step that failed; static */
};

/* Where a tensor is: in device memory, nowhere (between operations), or a number that the host passes. */
enum dnn_place { DNN_MEMORY, DNN_VIRTUAL, DNN_VALUE };

struct dnn_shape {
	int64_t dims[DNN_RANK], strides[DNN_RANK];
};

/* uid: the number under which a plan gets the address; virtual tensors get their own. align_bytes: of the
 * address. */
dnn_tensor dnn_tensor_add(struct dnn_graph *g, enum dnn_place place, cudnnDataType_t type,
        struct dnn_shape shape, int64_t uid, int64_t align_bytes);
void dnn_matmul(struct dnn_graph *g, dnn_tensor c, dnn_tensor a, dnn_tensor b);

/* y = mode(x, b, t): b and t are NULL if the mode has none. axis: of GEN_INDEX, otherwise -1. math: the type
 * of the arithmetic. */
void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, dnn_tensor y, dnn_tensor x, dnn_tensor b,
        dnn_tensor t, cudnnDataType_t math, int64_t axis);
void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t op, dnn_tensor y, dnn_tensor x);
void dnn_reshape(struct dnn_graph *g, dnn_tensor y, dnn_tensor x);
void dnn_graph_close(struct dnn_graph *g);

/* The best engine that gives the same bits each time and fits the workspace. Planned for the GPU of a handle,
 * or (in tests without a GPU) for the one that `properties` describes in cuDNN's JSON.
 */
struct dnn_plan {
	cudnnBackendDescriptor_t plan;
	int64_t workspace_bytes;
};
struct dnn_target {
	cudnnHandle_t handle;
	const char *properties;
};

/* 0; ERR_UNSUPPORTED (no engine; the text says how far it went). The graph can be closed afterwards. */
int dnn_plan_open(struct dnn_plan *plan, struct dnn_graph *g, const struct dnn_target *target,
        int64_t workspace_bytes_max);
void dnn_plan_close(const struct cudnn *f, struct dnn_plan *plan);

#endif
#endif
