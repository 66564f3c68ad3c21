/* Shared by the files of the CUDA backend: the launchers of ops, where they run, and errors.
 *
 * An op has a file with the basename of its twin in host/cpu. The file has the kernels and the launcher,
 * which chooses grid and block and queues them. A launcher gets an op that op_check has accepted. It returns
 * before the work is done, never waits and allocates nothing. The same op gives the same bits each time: no
 * atomics on floats, no order that depends on scheduling. Sums accumulate in fp32 or better.
 *
 * nvcc compiles these sources for the GPU. In tests/simt the host's C++ compiler compiles them for an
 * emulator. kernel.cuh lists what a kernel may use.
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

/* The stream and the GPU that a launcher uses; one per stream, filled by the device. */
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

/* Declares the launcher of an op. A file of ops applies it to its part of the list, for example
 * OP_ROPE_LIST(CUDA_DECLARE) before cuda_rope. So the compiler compares the launcher with the one that
 * cuda_op calls. An op without a launcher does not link. */
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
