/* CUDA C++ for kernels, as plain C++ for the emulator: qualifiers, thread indices, barriers, shuffles,
 * votes, intrinsics, matrix instructions, and the launch. It has only names that ferry's kernels use or
 * may soon use. A missing name is a compile error, never a wrong result.
 *
 * Functions that wait pass on the place of their call, so that findings name it.
 */
#ifndef FERRY_TESTS_SIMT_CUDA_RUNTIME_H
#define FERRY_TESTS_SIMT_CUDA_RUNTIME_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus

#include "tests/simt/simt.h"
#include "tests/simt/simt_device.h"
#include "tests/simt/simt_math.h"

#include <initializer_list>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <type_traits>

#define FERRY_SIMT 1

#define __global__ __attribute__((unused))
#define __device__ __attribute__((unused))
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#ifndef __noinline__
#define __noinline__ __attribute__((noinline))
#endif
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

/* Objects instead of macros, because members of cudaLaunchConfig_t have the same names. */
/* clang-format off */
#define SIMT_INDEX(name, function)                                                                           \
	static const struct {                                                                                \
		struct {                                                                                     \
			operator unsigned() const { return function().x; }                                   \
		} x;                                                                                         \
		struct {                                                                                     \
			operator unsigned() const { return function().y; }                                   \
		} y;                                                                                         \
		struct {                                                                                     \
			operator unsigned() const { return function().z; }                                   \
		} z;                                                                                         \
	} name __attribute__((unused)) = {}
/* clang-format on */
SIMT_INDEX(threadIdx, simt_thread_index);
SIMT_INDEX(blockIdx, simt_block_index);
SIMT_INDEX(blockDim, simt_block_size);
SIMT_INDEX(gridDim, simt_grid_size);
#undef SIMT_INDEX
static const int warpSize __attribute__((unused)) = 32;

/* For SHARED and SHARED_DYNAMIC of kernel.cuh. Each instance of a template has its own lambda. */
#define simt_shared(bytes)                                                                                   \
	simt_shared_at(                                                                                      \
	        []() -> const void * {                                                                       \
		        static const char site = 0;                                                          \
		        return &site;                                                                        \
	        }(),                                                                                         \
	        bytes)

/* ---- vector types ---- */

struct dim3 {
	unsigned x, y, z;

	constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define SIMT_VECTORS(type, name, bytes)                                                                      \
	struct name##2                                                                                       \
	{                                                                                                    \
		alignas(2 * bytes) type x;                                                                   \
		type y;                                                                                      \
	};                                                                                                   \
	struct name##3                                                                                       \
	{                                                                                                    \
		type x, y, z;                                                                                \
	};                                                                                                   \
	struct name##4                                                                                       \
	{                                                                                                    \
		alignas(4 * bytes > 16 ? 16 : 4 * bytes) type x;                                             \
		type y, z, w;                                                                                \
	};                                                                                                   \
	static inline name##2 make_##name##2(type x, type y)                                                 \
	{                                                                                                    \
		return name##2 {x, y};                                                                       \
	}                                                                                                    \
	static inline name##4 make_##name##4(type x, type y, type z, type w)                                 \
	{                                                                                                    \
		return name##4 {x, y, z, w};                                                                 \
	}
SIMT_VECTORS(float, float, 4)
SIMT_VECTORS(int, int, 4)
SIMT_VECTORS(unsigned, uint, 4)
SIMT_VECTORS(double, double, 8)
SIMT_VECTORS(short, short, 2)
SIMT_VECTORS(unsigned short, ushort, 2)
SIMT_VECTORS(signed char, char, 1)
SIMT_VECTORS(unsigned char, uchar, 1)
SIMT_VECTORS(long long, longlong, 8)
SIMT_VECTORS(unsigned long long, ulonglong, 8)
#undef SIMT_VECTORS

/* ---- the block ---- */

#define SIMT_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(SIMT_HERE)
{
	simt_block_sync(0, SIMT_COUNT, file, line);
}

static inline int __syncthreads_count(int predicate, SIMT_HERE)
{
	return simt_block_sync(predicate, SIMT_COUNT, file, line);
}

static inline int __syncthreads_and(int predicate, SIMT_HERE)
{
	return simt_block_sync(predicate, SIMT_AND, file, line);
}

static inline int __syncthreads_or(int predicate, SIMT_HERE)
{
	return simt_block_sync(predicate, SIMT_OR, file, line);
}

/* On the host, a thread's accesses are in order already. Fences order a thread's own accesses; they are not
 * barriers. */
static inline void __threadfence_block() {}
static inline void __threadfence() {}

/* ---- the warp ---- */

static inline void __syncwarp(unsigned mask = 0xffffffffu, SIMT_HERE)
{
	simt_warp_sync(mask, file, line);
}

template <class T>
static inline T simt_shuffle_of(
        unsigned mask, T value, simt_shuffle how, int by, int width, const char *file, int line)
{
	uint64_t bits = 0;

	static_assert(
	        std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8), "not CUDA's shuffle");
	memcpy(&bits, &value, sizeof(value));
	bits = simt_warp_shuffle(mask, bits, how, by, width, file, line);
	memcpy(&value, &bits, sizeof(value));
	return value;
}

template <class T> static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, SIMT_HERE)
{
	return simt_shuffle_of(mask, value, SIMT_IDX, lane, width, file, line);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, SIMT_HERE)
{
	return simt_shuffle_of(mask, value, SIMT_UP, (int)by, width, file, line);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, SIMT_HERE)
{
	return simt_shuffle_of(mask, value, SIMT_DOWN, (int)by, width, file, line);
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, SIMT_HERE)
{
	return simt_shuffle_of(mask, value, SIMT_XOR, by, width, file, line);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_HERE)
{
	return simt_warp_ballot(mask, predicate, file, line);
}

static inline int __any_sync(unsigned mask, int predicate, SIMT_HERE)
{
	return simt_warp_ballot(mask, predicate, file, line) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, SIMT_HERE)
{
	return simt_warp_ballot(mask, predicate, file, line) == mask;
}

template <class T> static inline unsigned __match_any_sync(unsigned mask, T value, SIMT_HERE)
{
	uint64_t bits = 0;

	static_assert(sizeof(T) == 4 || sizeof(T) == 8, "not CUDA's match");
	memcpy(&bits, &value, sizeof(value));
	return simt_warp_match(mask, bits, file, line);
}

static inline unsigned __activemask()
{
	return simt_warp_active();
}

#define SIMT_REDUCE(name, type, how)                                                                         \
	static inline type name(unsigned mask, type value, SIMT_HERE)                                        \
	{                                                                                                    \
		return (type)simt_warp_reduce(mask, (uint32_t)value, how, file, line);                       \
	}
SIMT_REDUCE(__reduce_add_sync, int, SIMT_ADD)
SIMT_REDUCE(__reduce_add_sync, unsigned, SIMT_ADD)
SIMT_REDUCE(__reduce_min_sync, int, SIMT_MIN)
SIMT_REDUCE(__reduce_max_sync, int, SIMT_MAX)
SIMT_REDUCE(__reduce_min_sync, unsigned, SIMT_UMIN)
SIMT_REDUCE(__reduce_max_sync, unsigned, SIMT_UMAX)
SIMT_REDUCE(__reduce_and_sync, unsigned, SIMT_BITAND)
SIMT_REDUCE(__reduce_or_sync, unsigned, SIMT_BITOR)
SIMT_REDUCE(__reduce_xor_sync, unsigned, SIMT_BITXOR)
#undef SIMT_REDUCE

/* ---- atomics: integers, or results that do not depend on the order of execution ---- */

template <class T> static inline T simt_atomic_get(const T *at)
{
	T value;

	simt_atomic_load(&value, at, sizeof(T));
	return value;
}

template <class T> static inline void simt_atomic_set(T *at, T value)
{
	simt_atomic_store(at, &value, sizeof(T));
}

template <class T, class F> static __forceinline__ T simt_atomic_change(T *at, F change)
{
	T was;

	static_assert(std::is_integral<T>::value, "an atomic of floats gives other bits from run to run");
	simt_atomic(at, sizeof(T));
	was = simt_atomic_get(at);
	simt_atomic_set(at, change(was));
	return was;
}

#define SIMT_ATOMICS(type)                                                                                   \
	static inline type atomicAdd(type *at, type x)                                                       \
	{                                                                                                    \
		return simt_atomic_change(at, [x](type was) -> type { return was + x; });                    \
	}                                                                                                    \
	static inline type atomicMin(type *at, type x)                                                       \
	{                                                                                                    \
		return simt_atomic_change(at, [x](type was) -> type { return was < x ? was : x; });          \
	}                                                                                                    \
	static inline type atomicMax(type *at, type x)                                                       \
	{                                                                                                    \
		return simt_atomic_change(at, [x](type was) -> type { return was > x ? was : x; });          \
	}                                                                                                    \
	static inline type atomicAnd(type *at, type x)                                                       \
	{                                                                                                    \
		return simt_atomic_change(at, [x](type was) -> type { return was & x; });                    \
	}                                                                                                    \
	static inline type atomicOr(type *at, type x)                                                        \
	{                                                                                                    \
		return simt_atomic_change(at, [x](type was) -> type { return was | x; });                    \
	}                                                                                                    \
	static inline type atomicExch(type *at, type x)                                                      \
	{                                                                                                    \
		return simt_atomic_change(at, [x](type) -> type { return x; });                              \
	}                                                                                                    \
	static inline type atomicCAS(type *at, type compare, type x)                                         \
	{                                                                                                    \
		return simt_atomic_change(                                                                   \
		        at, [compare, x](type was) -> type { return was == compare ? x : was; });            \
	}
SIMT_ATOMICS(int)
SIMT_ATOMICS(unsigned)
SIMT_ATOMICS(unsigned long long)
#undef SIMT_ATOMICS

/* ---- loads and stores with hints for caches ---- */

template <class T> static __forceinline__ T __ldg(const T *at)
{
	return *at;
}

template <class T> static __forceinline__ T __ldcs(const T *at)
{
	return *at;
}

template <class T> static __forceinline__ T __ldcg(const T *at)
{
	return *at;
}

template <class T> static __forceinline__ T __ldca(const T *at)
{
	return *at;
}

template <class T> static __forceinline__ void __stcs(T *at, T value)
{
	*at = value;
}

template <class T> static __forceinline__ void __stcg(T *at, T value)
{
	*at = value;
}

/* ---- bits and numbers ---- */

template <class To, class From> static __forceinline__ To simt_bits(From x)
{
	To y;

	static_assert(sizeof(x) == sizeof(y), "bits of the same number of bytes");
	memcpy(&y, &x, sizeof(y));
	return y;
}

static inline float __uint_as_float(unsigned x)
{
	return simt_bits<float>(x);
}

static inline unsigned __float_as_uint(float x)
{
	return simt_bits<unsigned>(x);
}

static inline float __int_as_float(int x)
{
	return simt_bits<float>(x);
}

static inline int __float_as_int(float x)
{
	return simt_bits<int>(x);
}

static inline double __longlong_as_double(long long x)
{
	return simt_bits<double>(x);
}

static inline long long __double_as_longlong(double x)
{
	return simt_bits<long long>(x);
}

static inline int __clz(int x)
{
	return x ? __builtin_clz((unsigned)x) : 32;
}

static inline int __ffs(int x)
{
	return __builtin_ffs(x);
}

static inline int __popc(unsigned x)
{
	return __builtin_popcount(x);
}

static inline unsigned __umulhi(unsigned a, unsigned b)
{
	return (unsigned)((uint64_t)a * b >> 32);
}

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
	return (unsigned long long)((unsigned __int128)a * b >> 64);
}

/* PTX's prmt without a mode. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
	uint64_t both = (uint64_t)y << 32 | x;
	unsigned result = 0;

	for (int i = 0; i < 4; i++)
		result |= (unsigned)(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
	return result;
}

static inline unsigned __brev(unsigned x)
{
	unsigned result = 0;

	for (int i = 0; i < 32; i++)
		result |= (x >> i & 1) << (31 - i);
	return result;
}

/* Rounds to nearest even; never contracted, because the build has -ffp-contract=off. */
#define SIMT_ROUNDED(type, letter, root)                                                                     \
	static inline type __##letter##add_rn(type a, type b)                                                \
	{                                                                                                    \
		return a + b;                                                                                \
	}                                                                                                    \
	static inline type __##letter##sub_rn(type a, type b)                                                \
	{                                                                                                    \
		return a - b;                                                                                \
	}                                                                                                    \
	static inline type __##letter##mul_rn(type a, type b)                                                \
	{                                                                                                    \
		return a * b;                                                                                \
	}                                                                                                    \
	static inline type __##letter##div_rn(type a, type b)                                                \
	{                                                                                                    \
		return a / b;                                                                                \
	}                                                                                                    \
	static inline type __##letter##sqrt_rn(type a)                                                       \
	{                                                                                                    \
		return root(a);                                                                              \
	}                                                                                                    \
	static inline type __##letter##rcp_rn(type a)                                                        \
	{                                                                                                    \
		return (type)1 / a;                                                                          \
	}
SIMT_ROUNDED(float, f, sqrtf)
SIMT_ROUNDED(double, d, sqrt)
#undef SIMT_ROUNDED

static inline float __fmaf_rn(float a, float b, float c)
{
	return fmaf(a, b, c);
}

static inline double __fma_rn(double a, double b, double c)
{
	return fma(a, b, c);
}

static inline float __int2float_rn(int x)
{
	return (float)x;
}

static inline float __uint2float_rn(unsigned x)
{
	return (float)x;
}

static inline float __double2float_rn(double x)
{
	return (float)x;
}

static inline int __float2int_rn(float x)
{
	return (int)rintf(x);
}

#define SIMT_MIN_MAX(type)                                                                                   \
	static inline type min(type a, type b)                                                               \
	{                                                                                                    \
		return a < b ? a : b;                                                                        \
	}                                                                                                    \
	static inline type max(type a, type b)                                                               \
	{                                                                                                    \
		return a > b ? a : b;                                                                        \
	}
SIMT_MIN_MAX(int)
SIMT_MIN_MAX(unsigned)
SIMT_MIN_MAX(long)
SIMT_MIN_MAX(unsigned long)
SIMT_MIN_MAX(long long)
SIMT_MIN_MAX(unsigned long long)
#undef SIMT_MIN_MAX

static inline float min(float a, float b)
{
	return fminf(a, b);
}

static inline float max(float a, float b)
{
	return fmaxf(a, b);
}

static inline double min(double a, double b)
{
	return fmin(a, b);
}

static inline double max(double a, double b)
{
	return fmax(a, b);
}

static inline void __trap(SIMT_HERE)
{
	simt_fail("__trap", file, line);
}

/* ---- gpu/mma.cuh ---- */

static inline void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], SIMT_HERE)
{
	simt_mma_bf16(d, a, b, file, line);
}

static inline void ldmatrix_x4(uint32_t r[4], const void *row, SIMT_HERE)
{
	simt_ldmatrix_x4(r, row, 0, file, line);
}

static inline void ldmatrix_x4_trans(uint32_t r[4], const void *row, SIMT_HERE)
{
	simt_ldmatrix_x4(r, row, 1, file, line);
}

static inline void cp_async_16(void *shared, const void *global, int valid)
{
	simt_async(shared, global, 16, valid);
}

static inline void cp_async_4(void *shared, const void *global, int valid)
{
	simt_async(shared, global, 4, valid);
}

static inline void cp_async_commit()
{
	simt_async_commit();
}

template <int pending> static inline void cp_async_wait()
{
	simt_async_wait(pending);
}

/* ---- the launch ---- */

struct cudaLaunchAttribute;

typedef struct cudaLaunchConfig_st {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	cudaLaunchAttribute *attrs;
	unsigned numAttrs;
} cudaLaunchConfig_t;

/* Keeps a kernel and its arguments until the stream reaches it. */
template <class... P> struct simt_call {
	void (*kernel)(P...);
	std::tuple<P...> args;

	static void run(void *call)
	{
		std::apply(static_cast<simt_call *>(call)->kernel, static_cast<simt_call *>(call)->args);
	}
	static void drop(void *call) { delete static_cast<simt_call *>(call); }
};

template <class... P, class... A>
static inline cudaError_t cudaLaunchKernelEx(
        const cudaLaunchConfig_t *config, void (*kernel)(P...), A... args)
{
	const uint32_t grid[3] = {config->gridDim.x, config->gridDim.y, config->gridDim.z};
	const uint32_t block[3] = {config->blockDim.x, config->blockDim.y, config->blockDim.z};
	const void *address = reinterpret_cast<const void *>(kernel);
	int error = simt_check_config(address, grid, block, config->dynamicSmemBytes);
	simt_launch *launch;

	if (error)
		return (cudaError_t)error;
	launch = simt_launch_make(simt_call<P...>::run, simt_call<P...>::drop,
	        new simt_call<P...>{kernel, std::tuple<P...>(args...)}, sizeof(simt_call<P...>), address,
	        grid, block, config->dynamicSmemBytes);
	return launch ? (cudaError_t)simt_runtime_queue_launch(config->stream, launch)
	              : cudaErrorMemoryAllocation;
}

#endif
#endif
