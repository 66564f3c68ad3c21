/* Forward kernels of rmsnorm and layernorm, and the parts that cuda_norm_grad.cuh uses too. rmsnorm is
 * layernorm with mean 0, as in host/cpu/cpu_norm.c.
 *
 * A team of threads computes a row (one group of one row). A team is a power of two threads, at most a block.
 * Thread t of a team of `lanes` has the row's vectors t, t + lanes, ... It keeps HELD of them in registers,
 * so that memory is read once. A vector is N elements: 16 bytes, or 1 element if an address or a stride is
 * not a multiple of 16 bytes.
 *
 * Sums over a row are in double; backward first sums each vector in fp32. They use butterflies with a shape
 * that depends on `lanes` only. dweight and dbias are summed in fp32 over the rows of a team and over teams,
 * then in double over blocks of rows, each in a fixed order.
 *
 * In forward, double costs one conversion and one addition for each element and sum. That is 1/4 of what an
 * H100 can do at the rate of its memory, and about all that a card with 1/64 rate can do.
 */
#ifndef FERRY_GPU_CUDA_NORM_CUH
#define FERRY_GPU_CUDA_NORM_CUH

#include "gpu/map.cuh"

extern "C" {
#include "device/op_norm.h"
}

enum norm_kind { NORM_RMS, NORM_LAYER };

enum {
	NORM_FORWARD_LANES = 1024, /* of a team at most, and so of a block */
	NORM_FORWARD_LEAST = 8,    /* 128 bytes; in longer rows a thread has several vectors */
	NORM_HELD = 4,
};

/* Row i / groups, group i % groups. */
struct norm_place {
	int64_t row, group;
};

static __device__ __forceinline__ norm_place norm_place_of(int64_t i, int64_t groups)
{
	if (groups == 1)
		return {i, 0};
	if ((i | groups) >> 32 == 0) { /* a division of 64 bits takes many instructions */
		uint32_t row = (uint32_t)i / (uint32_t)groups;

		return {row, (uint32_t)i - row * (uint32_t)groups};
	}
	return {i / groups, i % groups};
}

/* The first element of the row. */
static __device__ __forceinline__ int64_t norm_at(norm_place place, int64_t stride, int64_t group_stride)
{
	return place.row * stride + place.group * group_stride;
}

/* ---- a thread's part of a row ---- */

/* `row` points to the thread's first element. `count` is the number of elements from there to the row's end,
 * 0 for a team without a row. step is lanes * N. Vectors are held as words: nvcc splits a struct of bf16 as
 * soon as it arrives, and so waits for a row that is not needed yet. */
template <class T, int N, int HELD> struct norm_part {
	span<T, N> held[HELD];

	__device__ __forceinline__ void load(const T *row, int step, int count)
	{
#pragma unroll
		for (int k = 0; k < HELD; k++)
			if (k * step < count)
				span_load(held[k], row + k * step);
	}
	__device__ __forceinline__ float at(int k, int j) const
	{
		const span<T, N> &s = held[k];

		return span_get(s, j);
	}
};

/* Longer rows are read again for each use. */
template <class T, int N> struct norm_part<T, N, 0> {
};

template <class T, int N, int HELD, class F>
static __device__ __forceinline__ void norm_each(
        const norm_part<T, N, HELD> &part, const T *row, int step, int64_t count, F use)
{
	if constexpr (HELD > 0) {
#pragma unroll
		for (int k = 0; k < HELD; k++)
			if (k * step < (int)count)
				use(k * step, part.held[k]);
	} else {
		for (int64_t c = 0; c < count; c += step) {
			span<T, N> v;

			span_load(v, row + c);
			use(c, v);
		}
	}
}

/* Sum over the threads of each team of the block, for teams smaller than a warp. */
static __device__ __forceinline__ double lanes_sum(double x, int lanes)
{
	for (int half = lanes >> 1; half; half >>= 1)
		x += __shfl_xor_sync(0xffffffffu, x, half);
	return x;
}

/* Sum over the threads of each team of the block. lanes is a power of two; `shared` has a place for each
 * warp, and is free again after the block's next barrier. */
static __device__ __forceinline__ double team_sum(double x, int lanes, double *shared)
{
	const int warps = lanes >> 5, lane = (int)threadIdx.x & (WARP - 1), warp = (int)threadIdx.x >> 5;

	if (warps == 0)
		return lanes_sum(x, lanes);
	x = warp_sum(x);
	if (warps == 1)
		return x;
	if (lane == 0)
		shared[warp] = x;
	__syncthreads();
	return warp_sum(lane < warps ? shared[(warp & -warps) + lane] : 0.0);
}

/* Two sums, for teams of at most 16 warps: each half of a warp adds up one of them. `shared` has two places
 * for each warp. */
static __device__ __forceinline__ void team_sum_pair(double (&x)[2], int lanes, double *shared)
{
	const int warps = lanes >> 5, lane = (int)threadIdx.x & (WARP - 1), warp = (int)threadIdx.x >> 5;
	const int side = lane / (WARP / 2), place = lane % (WARP / 2);
	double mine = side ? x[1] : x[0];

	if (warps == 0) {
		x[0] = lanes_sum(x[0], lanes);
		x[1] = lanes_sum(x[1], lanes);
		return;
	}
	mine += __shfl_xor_sync(0xffffffffu, side ? x[0] : x[1], WARP / 2);
#pragma unroll
	for (int half = WARP / 4; half; half /= 2)
		mine += __shfl_xor_sync(0xffffffffu, mine, half);
	if (warps > 1) {
		if (place == 0)
			shared[side * WARP + warp] = mine;
		__syncthreads();
		mine = place < warps ? shared[side * WARP + (warp & -warps) + place] : 0.0;
#pragma unroll
		for (int half = WARP / 4; half; half /= 2)
			mine += __shfl_xor_sync(0xffffffffu, mine, half);
	}
	x[0] = __shfl_sync(0xffffffffu, mine, 0);
	x[1] = __shfl_sync(0xffffffffu, mine, WARP / 2);
}

/* ---- forward ---- */

/* Loads N elements of a weight or a bias, WIDTH at a time: N if it is aligned to so many, or 1. */
template <class T, int N, int WIDTH> static __device__ __forceinline__ span<T, N> norm_load(const T *from)
{
	span<T, N> v;

	if constexpr (N == WIDTH) {
		span_load(v, from);
	} else {
		vec<T, N> elements;

#pragma unroll
		for (int j = 0; j < N; j++)
			elements.at[j] = from[j];
		memcpy(&v, &elements, sizeof v);
	}
	return v;
}

/* Bytes moved in bf16: 2 read and 2 written for an element (the weight comes from the caches), 4 or 8 written
 * for a row. */
template <enum norm_kind KIND, class T, int N, int HELD, int WIDTH>
static __global__ void __launch_bounds__(NORM_FORWARD_LANES)
        norm_forward(struct op_norm o, double inverse_cols, int lanes_log2)
{
	SHARED(double, mean_parts, WARP);
	SHARED(double, square_parts, WARP);
	const int lanes = 1 << lanes_log2;
	int64_t i = (int64_t)blockIdx.x * (blockDim.x >> lanes_log2) + (threadIdx.x >> lanes_log2);
	int first = ((int)threadIdx.x & (lanes - 1)) * N, step = lanes * N;
	int64_t count = i < o.rows * o.groups ? o.cols - first : 0;
	norm_place place = norm_place_of(i, o.groups);
	const T *x = dev_ptr<const T>(o.x) + norm_at(place, o.x_stride, o.x_group_stride) + first;
	T *y = dev_ptr<T>(o.y) + norm_at(place, o.y_stride, o.y_group_stride) + first;
	const T *weight = dev_ptr<const T>(o.weight) + first;
	const T *bias = o.bias.value ? dev_ptr<const T>(o.bias) + first : NULL;
	norm_part<T, N, HELD> part;
	double mean = 0, square = 0;
	float m, rstd, offset = (float)o.weight_offset;

	if constexpr (HELD > 0)
		part.load(x, step, (int)count);
	if (KIND == NORM_LAYER) {
		norm_each(part, x, step, count, [&](int64_t, const span<T, N> &v) {
#pragma unroll
			for (int j = 0; j < N; j++)
				mean += (double)span_get(v, j);
		});
		mean = team_sum(mean, lanes, mean_parts) * inverse_cols;
	}
	norm_each(part, x, step, count, [&](int64_t, const span<T, N> &v) {
#pragma unroll
		for (int j = 0; j < N; j++) {
			double d = (double)span_get(v, j) - mean;

			square = fma(d, d, square);
		}
	});
	square = team_sum(square, lanes, square_parts);
	rstd = (float)rsqrt(fma(square, inverse_cols, o.epsilon));
	m = (float)mean;
	norm_each(part, x, step, count, [&](int64_t c, const span<T, N> &v) {
		span<T, N> w = norm_load<T, N, WIDTH>(weight + c), b = {}, out;
		float value[N];

		if (KIND == NORM_LAYER && bias)
			b = norm_load<T, N, WIDTH>(bias + c);
#pragma unroll
		for (int j = 0; j < N; j++) {
			float factor = span_get(w, j) + offset;

			value[j] = (span_get(v, j) - m) * rstd;
			value[j] = KIND == NORM_LAYER ? fmaf(value[j], factor, span_get(b, j))
			                              : value[j] * factor;
		}
		span_put(out, value);
		span_store(y + c, out);
	});
	if (first == 0 && count > 0) {
		dev_ptr<float>(o.rstd)[i] = rstd;
		if (KIND == NORM_LAYER)
			dev_ptr<float>(o.mean)[i] = m;
	}
}

/* ---- launchers ---- */

static inline int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* The smallest n with 2^n >= count. */
static inline int log2_from(int64_t count)
{
	int n = 0;

	while ((int64_t)1 << n < count)
		n++;
	return n;
}

/* 1 if rows may be read in vectors of 16 bytes. The shape alone decides: buffers in the arena are aligned to
 * more. */
static inline int norm_is_aligned(const void *a, int64_t stride, int64_t group_stride, int64_t element_bytes)
{
	return is_aligned(a, 16) && stride * element_bytes % 16 == 0 &&
	       group_stride * element_bytes % 16 == 0;
}

template <enum norm_kind KIND, class T, int N, int WIDTH>
static int norm_forward_start(const struct cuda_launch *at, const char *what, const struct op_norm *o)
{
	int64_t vectors = ceil_div(o->cols, N), held = ceil_div(vectors, NORM_HELD);
	int lanes_log2 = log2_from(least(vectors, most(NORM_FORWARD_LEAST, held)));
	int64_t lanes = (int64_t)1 << lanes_log2, block = most(lanes, 128), rows = o->rows * o->groups;
	double inverse_cols = 1 / (double)o->cols;

	if (lanes > NORM_FORWARD_LANES)
		return cuda_start(at, what, norm_forward<KIND, T, N, 0, WIDTH>, dim3((unsigned)rows),
		        NORM_FORWARD_LANES, 0, *o, inverse_cols, log2_from(NORM_FORWARD_LANES));
	return cuda_start(at, what,
	        vectors <= lanes ? norm_forward<KIND, T, N, 1, WIDTH>
	                         : norm_forward<KIND, T, N, NORM_HELD, WIDTH>,
	        dim3((unsigned)ceil_div(rows, block / lanes)), (int)block, 0, *o, inverse_cols, lanes_log2);
}

template <enum norm_kind KIND, class T>
static int norm_forward_typed(const struct cuda_launch *at, const char *what, const struct op_norm *o)
{
	int64_t e = sizeof(T);

	if (o->cols % vec_count<T> == 0 &&
	        norm_is_aligned(dev_ptr<void>(o->x), o->x_stride, o->x_group_stride, e) &&
	        norm_is_aligned(dev_ptr<void>(o->y), o->y_stride, o->y_group_stride, e)) {
		/* weight and bias may have any address, and the order of sums must not depend on it */
		if (is_aligned(dev_ptr<void>(o->weight), 16) && is_aligned(dev_ptr<void>(o->bias), 16))
			return norm_forward_start<KIND, T, vec_count<T>, vec_count<T>>(at, what, o);
		return norm_forward_start<KIND, T, vec_count<T>, 1>(at, what, o);
	}
	return norm_forward_start<KIND, T, 1, 1>(at, what, o);
}

template <enum norm_kind KIND>
static int norm_forward_any(const struct cuda_launch *at, const struct op_norm *op)
{
	const char *what = KIND == NORM_RMS ? "rmsnorm" : "layernorm";
	struct op_norm o = *op;

	if (KIND == NORM_RMS)
		o.bias = DEV_NONE;
	if (o.dtype == DTYPE_F32)
		return norm_forward_typed<KIND, float>(at, what, &o);
	return norm_forward_typed<KIND, bf16>(at, what, &o);
}

#endif
