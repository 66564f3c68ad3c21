/* What the files of the CUDA backend share: where a launcher may run, its table, and errors.
 *
 * One file per op, with the basename of its twin in host/cpu: the kernels, and beside them the launcher that
 * chooses grid and block and queues them. A launcher gets an op that op_check has accepted, returns before
 * the work is done, never waits, allocates nothing and gives the same bits for the same op each time (no
 * atomics on floats, no order that depends on scheduling). Sums accumulate in fp32 or better.
 *
 * The same sources are compiled by nvcc for the GPU and, in tests/simt, by the host's C++ compiler for an
 * emulator; kernel.cuh says what a kernel may use.
 */
#ifndef FERRY_GPU_CUDA_H
#define FERRY_GPU_CUDA_H

#include <cuda_runtime_api.h>

#include "device/addr.h"

#ifdef __cplusplus
extern "C" {
#endif

struct op; /* device/op.h */

struct cuda_blas; /* cuda_matmul.c: cuBLASLt, its workspace and the algorithms chosen so far */

/* Where and on what a launcher runs; one per stream, filled by the device. */
struct cuda_launch {
	cudaStream_t stream;
	int capability;       /* of the GPU: 80, 86, 89, 90, 100, 120 */
	int sm_count;         /* multiprocessors */
	int shared_bytes_max; /* dynamic shared memory that a block may ask for */
	struct cuda_blas *blas;
};

/* 0, or ERR_DEVICE with the call's name and CUDA's text (cuda_error.c). Clears no error. */
int cuda_check(cudaError_t error, const char *call);

/* 0, ERR_DEVICE (not queued), ERR_UNSUPPORTED (a library is missing; its name is in the text). */
int cuda_op(const struct cuda_launch *at, const struct op *op);

/* The launchers of a row of the list of ops. A file of ops expands its part of the list with it, so that its
 * launchers are those that cuda_op calls: OP_ROPE_LIST(CUDA_DECLARE) before cuda_rope. A name without one
 * does not link. */
#ifdef __cplusplus
#define CUDA_LINKAGE extern "C"
#else
#define CUDA_LINKAGE
#endif
#define CUDA_DECLARE(NAME, name, args)                                                                       \
	CUDA_LINKAGE int cuda_##name(const struct cuda_launch *at, const struct op_##args *op);

#ifdef __cplusplus
}
#endif
#endif
