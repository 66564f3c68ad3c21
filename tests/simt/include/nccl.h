/* The part of NCCL that gpu/ uses, declared here so that builds of the emulator need no NCCL. Names and
 * values follow NVIDIA's documentation; fake_nccl.c implements them. */
#ifndef FERRY_TESTS_SIMT_INCLUDE_NCCL_H
#define FERRY_TESTS_SIMT_INCLUDE_NCCL_H

#include <cuda_runtime_api.h>
#include <limits.h>
#include <stddef.h>

typedef struct fake_comm *ncclComm_t;

typedef struct {
	char internal[128];
} ncclUniqueId;

typedef enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6,
	ncclInProgress = 7,
} ncclResult_t;

typedef enum {
	ncclUint8 = 1,
	ncclInt32 = 2,
	ncclFloat16 = 6,
	ncclFloat32 = 7,
	ncclFloat64 = 8,
	ncclBfloat16 = 9,
} ncclDataType_t;

typedef enum { ncclSum = 0 } ncclRedOp_t;

typedef struct {
	size_t size;
	int blocking;
} ncclConfig_t;

/* clang-format off */
#define NCCL_CONFIG_INITIALIZER {sizeof(ncclConfig_t), INT_MIN}
/* clang-format on */

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclCommInitRankConfig(
        ncclComm_t *comm, int world_size, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclAllGather(const void *send, void *receive, size_t send_count, ncclDataType_t type,
        ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t receive_count, ncclDataType_t type,
        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type, ncclRedOp_t op,
        ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type, int root,
        ncclComm_t comm, cudaStream_t stream);

#endif
