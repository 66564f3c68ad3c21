/* Elementwise kernels over flat arrays that are aligned to their elements only.
 *
 * Mental model. An op is a small struct, passed to the kernel by value, that holds its addresses. Its load
 * reads N elements from index `at` on into registers; its store computes and writes them. A thread reads
 * DEPTH times N elements before it writes any, so that enough bytes are in flight even if an output
 * overwrites an input. One thread reads and writes each element.
 *
 * If the same number of elements brings all operands to a multiple of 16 bytes, these go one by one first.
 * The rest goes in accesses of 16 bytes, and the last few one by one again, all in one launch. Otherwise all
 * elements go one by one, coalesced.
 *
 * A struct F has
 *     enum { WIDTH, DEPTH };                              elements of a wide access; accesses in flight
 *     template <int N> struct in;                         the elements that are read, in registers
 *     template <int N> void load(in<N> &x, int64_t at) const;
 *     template <int N> void store(const in<N> &x, int64_t at) const;
 */
#ifndef FERRY_GPU_MAP_CUH
#define FERRY_GPU_MAP_CUH

#include "gpu/kernel.cuh"

enum { MAP_BLOCK = 256, MAP_DEPTH_SINGLE = 8 };

/* N elements as they are in memory: one, or whole accesses of 16 bytes. They are held as words, so that the
 * compiler does not split them before they are used. */
template <class T, int N> struct span {
	static_assert(N % vec_count<T> == 0, "one element, or whole accesses");
	enum { WORDS = N * (int)sizeof(T) / 4, PARTS = WORDS / 4 };
	vec<uint32_t, 4> part[PARTS];

	__device__ __forceinline__ uint32_t &word(int i) { return part[i / 4].at[i % 4]; }
	__device__ __forceinline__ uint32_t word(int i) const { return part[i / 4].at[i % 4]; }
};

/* As many bf16 as 16 bytes hold floats. If both are operands, eight of each would leave a gap of 16 bytes
 * between the floats that neighbouring threads access at once. Every sector would then be written in halves.
 */
template <> struct span<bf16, 4> {
	vec<uint32_t, 2> part;

	__device__ __forceinline__ uint32_t &word(int i) { return part.at[i]; }
	__device__ __forceinline__ uint32_t word(int i) const { return part.at[i]; }
};

template <class T> struct span<T, 1> {
	T one;
};

/* One access each. nvcc may split the assignment of a struct or of a uint4. */
static __device__ __forceinline__ void words_load(vec<uint32_t, 4> &to, const void *from)
{
#ifdef FERRY_SIMT
	to = *(const vec<uint32_t, 4> *)from;
#else
	const uint4 words = *(const uint4 *)from;

	to = {{words.x, words.y, words.z, words.w}};
#endif
}

static __device__ __forceinline__ void words_store(void *to, const vec<uint32_t, 4> &from)
{
#ifdef FERRY_SIMT
	*(vec<uint32_t, 4> *)to = from;
#else
	/* clang-format off */
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
	             :
	             : "l"(__cvta_generic_to_global(to)), "r"(from.at[0]), "r"(from.at[1]), "r"(from.at[2]),
	             "r"(from.at[3])
	             : "memory");
	/* clang-format on */
#endif
}

template <class T, int N> static __device__ __forceinline__ void span_load(span<T, N> &s, const T *from)
{
#pragma unroll
	for (int i = 0; i < span<T, N>::PARTS; i++)
		words_load(s.part[i], from + i * vec_count<T>);
}

template <class T, int N> static __device__ __forceinline__ void span_store(T *to, const span<T, N> &s)
{
#pragma unroll
	for (int i = 0; i < span<T, N>::PARTS; i++)
		words_store(to + i * vec_count<T>, s.part[i]);
}

static __device__ __forceinline__ void span_load(span<bf16, 4> &s, const bf16 *from)
{
#ifdef FERRY_SIMT
	s.part = *(const vec<uint32_t, 2> *)from;
#else
	const uint2 words = *(const uint2 *)from;

	s.part = {{words.x, words.y}};
#endif
}

static __device__ __forceinline__ void span_store(bf16 *to, const span<bf16, 4> &s)
{
#ifdef FERRY_SIMT
	*(vec<uint32_t, 2> *)to = s.part;
#else
	/* clang-format off */
	asm volatile("st.global.v2.u32 [%0], {%1, %2};"
	             :
	             : "l"(__cvta_generic_to_global(to)), "r"(s.part.at[0]), "r"(s.part.at[1])
	             : "memory");
	/* clang-format on */
#endif
}

template <class T> static __device__ __forceinline__ void span_load(span<T, 1> &s, const T *from)
{
	s.one = *from;
}

template <class T> static __device__ __forceinline__ void span_store(T *to, const span<T, 1> &s)
{
	*to = s.one;
}

/* Element i, widened. */
template <int N> static __device__ __forceinline__ float span_get(const span<float, N> &s, int i)
{
	return __uint_as_float(s.word(i));
}

template <int N> static __device__ __forceinline__ float span_get(const span<bf16, N> &s, int i)
{
	return __uint_as_float(i % 2 ? s.word(i / 2) & 0xffff0000u : s.word(i / 2) << 16);
}

static __device__ __forceinline__ float span_get(const span<float, 1> &s, int)
{
	return s.one;
}

static __device__ __forceinline__ float span_get(const span<bf16, 1> &s, int)
{
	return to_float(s.one);
}

/* x, rounded to nearest even; a NaN becomes some NaN. */
template <int N> static __device__ __forceinline__ void span_put(span<float, N> &s, const float x[N])
{
#pragma unroll
	for (int i = 0; i < N; i++)
		s.word(i) = __float_as_uint(x[i]);
}

template <int N> static __device__ __forceinline__ void span_put(span<bf16, N> &s, const float x[N])
{
#pragma unroll
	for (int i = 0; i < N; i += 2)
		s.word(i / 2) = bf16_pack(x[i], x[i + 1]);
}

static __device__ __forceinline__ void span_put(span<float, 1> &s, const float x[1])
{
	s.one = x[0];
}

static __device__ __forceinline__ void span_put(span<bf16, 1> &s, const float x[1])
{
	s.one = from_float<bf16>(x[0]);
}

/* x, rounded by bf16_from_f32 (base/num.h), which keeps the top bits of a NaN. The GPU's own conversion has
 * one NaN for all. */
static __device__ __forceinline__ uint32_t bf16_bits(float x)
{
	uint32_t u = __float_as_uint(x);
	uint32_t rounded = u + 0x7fff + ((u >> 16) & 1);

	return ((u & 0x7fffffff) > 0x7f800000 ? u | 0x400000 : rounded) >> 16;
}

template <int N> static __device__ __forceinline__ void span_put_exact(span<bf16, N> &s, const float x[N])
{
#pragma unroll
	for (int i = 0; i < N; i += 2)
		s.word(i / 2) = bf16_bits(x[i]) | bf16_bits(x[i + 1]) << 16;
}

static __device__ __forceinline__ void span_put_exact(span<bf16, 1> &s, const float x[1])
{
	s.one.bits = (uint16_t)bf16_bits(x[0]);
}

template <int N> static __device__ __forceinline__ void span_put_exact(span<float, N> &s, const float x[N])
{
	span_put(s, x);
}

template <int N, int DEPTH, class F>
static __global__ void __launch_bounds__(MAP_BLOCK) map_kernel(F f, int64_t count, int64_t head)
{
	const int64_t pieces = (count - head) / N;
	const int64_t first = (int64_t)blockIdx.x * (MAP_BLOCK * DEPTH) + threadIdx.x;
	typename F::template in<N> x[DEPTH];
	typename F::template in<1> edge;

#pragma unroll
	for (int i = 0; i < DEPTH; i++)
		if (first + i * MAP_BLOCK < pieces)
			f.load(x[i], head + (first + i * MAP_BLOCK) * N);
#pragma unroll
	for (int i = 0; i < DEPTH; i++)
		if (first + i * MAP_BLOCK < pieces)
			f.store(x[i], head + (first + i * MAP_BLOCK) * N);
	if (N > 1 && first < head) {
		f.load(edge, first);
		f.store(edge, first);
	}
	if (N > 1 && first < count - head - pieces * N) {
		f.load(edge, head + pieces * N + first);
		f.store(edge, head + pieces * N + first);
	}
}

/* The number of elements before the first at which every operand is aligned to `width` of its elements, or to
 * 16 bytes if that is less. -1: there is none. */
template <class... T> static inline int64_t map_head(int width, const T *...operand)
{
	for (int64_t head = 0; head < width; head++)
		if ((is_aligned(operand + head, width * (int)sizeof(T) < 16 ? width * (int)sizeof(T) : 16) &&
		            ...))
			return head;
	return -1;
}

/* Queues f over `count` elements, one at a time. */
template <class F>
static int map_start_single(const struct cuda_launch *at, const char *what, F f, int64_t count)
{
	return cuda_start(at, what, map_kernel<1, MAP_DEPTH_SINGLE, F>,
	        dim3((unsigned)ceil_div(count, MAP_BLOCK * MAP_DEPTH_SINGLE)), MAP_BLOCK, 0, f, count,
	        (int64_t)0);
}

/* Queues f over `count` elements; `single` runs if no wide access is possible. */
template <class F, class S, class... T>
static int map_start_either(
        const struct cuda_launch *at, const char *what, F f, S single, int64_t count, const T *...operand)
{
	int64_t head = map_head(F::WIDTH, operand...);

	if (head >= 0 && count - head >= F::WIDTH)
		return cuda_start(at, what, map_kernel<F::WIDTH, F::DEPTH, F>,
		        dim3((unsigned)ceil_div((count - head) / F::WIDTH, MAP_BLOCK * F::DEPTH)), MAP_BLOCK,
		        0, f, count, head);
	return map_start_single(at, what, single, count);
}

template <class F, class... T>
static int map_start(const struct cuda_launch *at, const char *what, F f, int64_t count, const T *...operand)
{
	return map_start_either(at, what, f, f, count, operand...);
}

#endif
