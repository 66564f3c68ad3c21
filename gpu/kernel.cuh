/* The language of kernels, and how a launcher starts one.
 *
 * Kernels are C-like C++17. They may use threadIdx, blockIdx, blockDim, gridDim, __syncthreads, __syncwarp,
 * the _sync warp shuffles and votes, the math functions of CUDA (no fast-math), explicit fmaf for a product
 * that is added, and the functions below. Only SHARED and SHARED_DYNAMIC take shared memory; all threads of a
 * block pass the same ones in the same order. Matrix instructions and asynchronous copies are in mma.cuh. The
 * emulator of tests/simt defines FERRY_SIMT and has its own form of all that is specific to the hardware
 * here.
 */
#ifndef FERRY_GPU_KERNEL_CUH
#define FERRY_GPU_KERNEL_CUH

#include "gpu/cuda.h"

#include <cuda_runtime.h>
#include <stdint.h>

enum { WARP = 32 };

/* SHARED(float, sum, 32): an array of that many elements, one per block. */
#ifdef FERRY_SIMT
#define SHARED(type, name, count) type *name = (type *)simt_shared((count) * sizeof(type))
#define SHARED_DYNAMIC(type, name) type *name = (type *)simt_shared_dynamic()
#else
#define SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define SHARED_DYNAMIC(type, name)                                                                           \
	extern __shared__ __align__(16) unsigned char shared_dynamic[];                                      \
	type *name = (type *)shared_dynamic
#endif

/* ---- numbers: bf16 is a type of its own here, so that no arithmetic happens in it ---- */

struct bf16 {
	uint16_t bits;
};

static __device__ __forceinline__ float to_float(float x)
{
	return x;
}

static __device__ __forceinline__ float to_float(bf16 x)
{
	return __uint_as_float((uint32_t)x.bits << 16);
}

/* Two floats to bf16, to nearest even; the first in the lower half. NaN stays NaN. */
static __device__ __forceinline__ uint32_t bf16_pack(float low, float high)
{
#ifdef FERRY_SIMT
	return simt_bf16_pack(low, high);
#else
	uint32_t packed;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
	return packed;
#endif
}

template <class T> static __device__ __forceinline__ T from_float(float x);

template <> __device__ __forceinline__ float from_float<float>(float x)
{
	return x;
}

template <> __device__ __forceinline__ bf16 from_float<bf16>(float x)
{
	return bf16{(uint16_t)bf16_pack(x, 0.0f)};
}

/* 2^x, with a relative error of at most 2^-22; results below 2^-126 become 0. */
static __device__ __forceinline__ float exp2_fast(float x)
{
#ifdef FERRY_SIMT
	return simt_ex2_approx(x);
#else
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

/* 1 / x, within a unit in the last place; 0 from 2^126 on. */
static __device__ __forceinline__ float reciprocal_fast(float x)
{
#ifdef FERRY_SIMT
	return simt_rcp_approx(x);
#else
	float y;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

/* 1 / sqrt(x), with a relative error of at most 2^-22.9. */
static __device__ __forceinline__ float rsqrt_fast(float x)
{
#ifdef FERRY_SIMT
	return simt_rsqrt_approx(x);
#else
	float y;

	asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

/* N elements, aligned for one access if they are at most 16 bytes. */
template <class T, int N> struct alignas(sizeof(T) * N) vec {
	T at[N];
};

template <class T> constexpr int vec_count = 16 / (int)sizeof(T);

static inline int is_aligned(const void *address, int64_t bytes)
{
	return (uintptr_t)address % (uintptr_t)bytes == 0;
}

template <class T> static __host__ __device__ __forceinline__ T *dev_ptr(dev_addr a)
{
	return (T *)(uintptr_t)a.value;
}

/* ---- sums over a warp: every lane gets the result, in an order that is the same each time ---- */

template <class T> static __device__ __forceinline__ T warp_sum(T x)
{
	for (int lanes = WARP / 2; lanes; lanes /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, lanes);
	return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
	for (int lanes = WARP / 2; lanes; lanes /= 2)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
	return x;
}

/* ---- launching ---- */

static inline int64_t ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

/* Queues kernel(args...) on at->stream. `what` is the op's name, for messages. */
template <class... P, class... A>
static int cuda_start(const struct cuda_launch *at, const char *what, void (*kernel)(P...), dim3 grid,
        int block, int64_t shared_bytes, A... args)
{
	cudaLaunchConfig_t config = {};
	cudaError_t error = cudaSuccess;

	config.gridDim = grid;
	config.blockDim = dim3((unsigned)block);
	config.dynamicSmemBytes = (size_t)shared_bytes;
	config.stream = at->stream;
	if (shared_bytes > (48 << 10)) {
		error = cudaFuncSetAttribute(
		        (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
		if (error == cudaSuccess) /* the driver's choice may leave room for one block only */
			error = cudaFuncSetAttribute((const void *)kernel,
			        cudaFuncAttributePreferredSharedMemoryCarveout,
			        cudaSharedmemCarveoutMaxShared);
	}
	if (error == cudaSuccess)
		error = cudaLaunchKernelEx(&config, kernel, (P)args...);
	return cuda_check(error, what);
}

#endif
