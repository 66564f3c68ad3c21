/* The part of CUDA's runtime that ferry uses, with CUDA's names and numbers, for the emulator.
 * simt_runtime.h is the fake runtime that implements it. Types for kernels are in cuda_runtime.h. */
#ifndef FERRY_TESTS_SIMT_CUDA_RUNTIME_API_H
#define FERRY_TESTS_SIMT_CUDA_RUNTIME_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDART_VERSION 12000
#define CUDART_CB

/* name, number, text */
#define SIMT_CUDA_ERRORS(X)                                                                                  \
	X(cudaSuccess, 0, "no error")                                                                        \
	X(cudaErrorInvalidValue, 1, "invalid argument")                                                      \
	X(cudaErrorMemoryAllocation, 2, "out of memory")                                                     \
	X(cudaErrorInitializationError, 3, "initialization error")                                           \
	X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                \
	X(cudaErrorStubLibrary, 34, "CUDA driver is a stub library")                                         \
	X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")   \
	X(cudaErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable")              \
	X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                      \
	X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                             \
	X(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                             \
	X(cudaErrorOperatingSystem, 304, "OS call failed or operation not supported on this OS")             \
	X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                    \
	X(cudaErrorNotReady, 600, "device not ready")                                                        \
	X(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device")  \
	X(cudaErrorUnsupportedPtxVersion, 222,                                                               \
	        "the provided PTX was compiled with an unsupported toolchain.")                              \
	X(cudaErrorSystemNotReady, 802, "system not yet initialized")                                        \
	X(cudaErrorSystemDriverMismatch, 803,                                                                \
	        "system has unsupported display driver / cuda driver combination")                           \
	X(cudaErrorCompatNotSupportedOnDevice, 804,                                                          \
	        "forward compatibility was attempted on non supported HW")                                   \
	X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                          \
	X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")                     \
	X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                            \
	X(cudaErrorHostMemoryAlreadyRegistered, 712,                                                         \
	        "part or all of the requested memory range is already mapped")                               \
	X(cudaErrorHostMemoryNotRegistered, 713,                                                             \
	        "pointer does not correspond to a registered memory region")                                 \
	X(cudaErrorAssert, 710, "device-side assert triggered")                                              \
	X(cudaErrorMisalignedAddress, 716, "misaligned address")                                             \
	X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                         \
	X(cudaErrorNotSupported, 801, "operation not supported")                                             \
	X(cudaErrorUnknown, 999, "unknown error")

#define SIMT_CUDA_ERROR_VALUE(name, number, text) name = number,
typedef enum cudaError { SIMT_CUDA_ERRORS(SIMT_CUDA_ERROR_VALUE) } cudaError_t;
#undef SIMT_CUDA_ERROR_VALUE

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

/* ---- devices ---- */

struct cudaDeviceProp {
	char name[256];
	size_t totalGlobalMem;
};

enum cudaDeviceAttr {
	cudaDevAttrMultiProcessorCount = 16,
	cudaDevAttrAsyncEngineCount = 40,
	cudaDevAttrComputeCapabilityMajor = 75,
	cudaDevAttrComputeCapabilityMinor = 76,
	cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

#define cudaDeviceScheduleBlockingSync 0x04

cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaSetDeviceFlags(unsigned flags);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device);
enum cudaDeviceP2PAttr { cudaDevP2PAttrPerformanceRank = 1, cudaDevP2PAttrNativeAtomicSupported = 3 };
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int device, int peer);
cudaError_t cudaDeviceSynchronize(void);

/* ---- memory ---- */

enum cudaMemcpyKind {
	cudaMemcpyHostToHost,
	cudaMemcpyHostToDevice,
	cudaMemcpyDeviceToHost,
	cudaMemcpyDeviceToDevice,
	cudaMemcpyDefault
};

#define cudaHostRegisterDefault 0x00
#define cudaHostAllocDefault 0x00

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaMalloc(void **at, size_t bytes);
cudaError_t cudaFree(void *at);
cudaError_t cudaMemset(void *at, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(
        void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *at);
cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *at);

/* ---- streams and events ---- */

#define cudaStreamNonBlocking 0x01
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02

typedef void (*cudaHostFn_t)(void *context);

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *context);

/* ---- functions of the driver: cuStreamWriteValue32, cuStreamWaitValue32 ---- */

#define cudaEnableDefault 0x0
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };

cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
        enum cudaDriverEntryPointQueryResult *result);

/* ---- launches: kernels go through cudaLaunchKernelEx of cuda_runtime.h ---- */

enum cudaFuncAttribute {
	cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
	cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaSharedCarveout { cudaSharedmemCarveoutMaxShared = 100 };

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value);

#ifdef __cplusplus
}
#endif
#endif
