/* Kernels of rmsnorm and layernorm, and what those of cuda_norm_grad.cuh share with them: rmsnorm is
 * layernorm whose mean is 0, as in host/cpu/cpu_norm.c, whose order of operations on an element this follows.
 *
 * A row (one group of one row) belongs to a team of threads: a power of two of them, from one to a block.
 * Thread t of a team of `lanes` has the row's vectors t, t + lanes, ...: HELD of them, kept in registers, so
 * that memory is passed once. A vector is N elements: 16 bytes, or 1 element where an address or a stride is
 * not a multiple of 16 bytes. Sums over a row are in double, by butterflies whose shape depends on `lanes`
 * only; dweight and dbias are summed in fp32 over the rows of a team and then over teams and blocks of rows,
 * each in a fixed order.
 *
 * Double costs one conversion and one addition an element and sum: 1/4 of what an H100 does at the rate of
 * its memory; about all that a card with 1/64 rate can do.
 */
#ifndef FERRY_GPU_CUDA_CUDA_NORM_CUH
#define FERRY_GPU_CUDA_CUDA_NORM_CUH

#include "gpu/cuda/map.cuh"

enum norm_kind { NORM_RMS, NORM_LAYER };

enum {
	NORM_FORWARD_LANES = 1024, /* the most that a team has, and so a block */
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
	if ((i | groups) >> 32 == 0) { /* division of 64 bits is a long program */
		uint32_t row = (uint32_t)i / (uint32_t)groups;

		return {row, (uint32_t)i - row * (uint32_t)groups};
	}
	return {i / groups, i % groups};
}

/* The element at which it starts. */
static __device__ __forceinline__ int64_t norm_at(norm_place place, int64_t stride, int64_t group_stride)
{
	return place.row * stride + place.group * group_stride;
}

/* Of a weight or a bias: these stand where their unit puts them, and the way that sums take must not depend
 * on it. */
template <class T, int N> static __device__ __forceinline__ vec<T, N> norm_load_any(const T *from)
{
	vec<T, N> v;

	if (N > 1 && (uintptr_t)from % sizeof v == 0) { /* as words: nvcc takes other structs apart */
		vec<uint32_t, 4> words = *(const vec<uint32_t, 4> *)from;

		memcpy(&v, &words, sizeof v);
		return v;
	}
#pragma unroll
	for (int j = 0; j < N; j++)
		v.at[j] = from[j];
	return v;
}

/* ---- a thread's part of a row ---- */

/* first: the thread's first element; step: lanes * N. cols is 0 for a team that has no row. Held as words: of
 * a struct of bf16 nvcc takes halves apart as soon as they are there, and so waits for a row that is not
 * wanted yet. */
template <class T, int N, int HELD> struct norm_part {
	span<T, N> held[HELD];

	__device__ __forceinline__ void load(const T *row, int first, int step, int64_t cols)
	{
#pragma unroll
		for (int k = 0; k < HELD; k++)
			if (first + k * step < cols)
				span_load(held[k], row + first + k * step);
	}
	__device__ __forceinline__ float at(int k, int j) const
	{
		return span_get(held[k], j);
	}
};

/* Longer rows are read again for each use. */
template <class T, int N> struct norm_part<T, N, 0> {
};

template <class T, int N, int HELD, class F>
static __device__ __forceinline__ void norm_each(
        const norm_part<T, N, HELD> &part, const T *row, int first, int step, int64_t cols, F use)
{
	if constexpr (HELD > 0) {
#pragma unroll
		for (int k = 0; k < HELD; k++)
			if (first + k * step < cols)
				use((int64_t)first + k * step, part.held[k]);
	} else {
		for (int64_t c = first; c < cols; c += step) {
			span<T, N> v;

			span_load(v, row + c);
			use(c, v);
		}
	}
}

/* Sum over the threads of each team of the block. lanes is a power of two; `shared` has a place for each
 * warp, and is free again after the block's next barrier. */
static __device__ __forceinline__ double team_sum(double x, int lanes, double *shared)
{
	int warps = lanes / WARP, lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;

	for (int half = (lanes < WARP ? lanes : WARP) / 2; half; half /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, half);
	if (warps <= 1)
		return x;
	if (lane == 0)
		shared[warp] = x;
	__syncthreads();
	x = shared[warp / warps * warps + lane % warps];
	for (int half = warps / 2; half; half /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, half);
	return x;
}

/* ---- forward ---- */

/* Bytes of bf16: 2 read and 2 written an element (the weight comes from the caches), 4 or 8 written a row. */
template <enum norm_kind KIND, class T, int N, int HELD>
static __global__ void __launch_bounds__(NORM_FORWARD_LANES)
        norm_forward(struct op_norm o, double inverse_cols, int lanes)
{
	SHARED(double, mean_parts, WARP);
	SHARED(double, square_parts, WARP);
	int64_t i = (int64_t)blockIdx.x * (blockDim.x / (unsigned)lanes) + threadIdx.x / (unsigned)lanes;
	int64_t cols = i < o.rows * o.groups ? o.cols : 0;
	int first = (int)threadIdx.x % lanes * N, step = lanes * N;
	norm_place place = norm_place_of(i, o.groups);
	const T *x = dev_ptr<const T>(o.x) + norm_at(place, o.x_stride, o.x_group_stride);
	T *y = dev_ptr<T>(o.y) + norm_at(place, o.y_stride, o.y_group_stride);
	const T *weight = dev_ptr<const T>(o.weight), *bias = dev_ptr<const T>(o.bias);
	norm_part<T, N, HELD> part;
	double mean = 0, square = 0;
	float m, rstd;

	if constexpr (HELD > 0)
		part.load(x, first, step, cols);
	if (KIND == NORM_LAYER) {
		norm_each(part, x, first, step, cols, [&](int64_t, const span<T, N> &v) {
#pragma unroll
			for (int j = 0; j < N; j++)
				mean += (double)span_get(v, j);
		});
		mean = team_sum(mean, lanes, mean_parts) * inverse_cols;
	}
	norm_each(part, x, first, step, cols, [&](int64_t, const span<T, N> &v) {
#pragma unroll
		for (int j = 0; j < N; j++) {
			double d = (double)span_get(v, j) - mean;

			square = fma(d, d, square);
		}
	});
	square = team_sum(square, lanes, square_parts);
	rstd = (float)rsqrt(fma(square, inverse_cols, o.epsilon));
	m = (float)mean;
	norm_each(part, x, first, step, cols, [&](int64_t c, const span<T, N> &v) {
		vec<T, N> w = norm_load_any<T, N>(weight + c), b = {};
		span<T, N> out;
		float value[N];

		if (KIND == NORM_LAYER && bias)
			b = norm_load_any<T, N>(bias + c);
#pragma unroll
		for (int j = 0; j < N; j++) {
			value[j] = (span_get(v, j) - m) * rstd * to_float(w.at[j]);
			if (KIND == NORM_LAYER && bias)
				value[j] += to_float(b.at[j]);
		}
		span_put(out, value);
		span_store(y + c, out);
	});
	if (first == 0 && cols) {
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

static inline int64_t power_of_two_from(int64_t count)
{
	int64_t power = 1;

	while (power < count)
		power *= 2;
	return power;
}

/* Rows may be read in vectors of 16 bytes: what is in the arena begins at more, and strides are shapes. */
static inline int norm_is_aligned(const void *a, int64_t stride, int64_t group_stride, int64_t element_bytes)
{
	return is_aligned(a, 16) && stride * element_bytes % 16 == 0 &&
	       group_stride * element_bytes % 16 == 0;
}

template <enum norm_kind KIND, class T, int N>
static int norm_forward_start(const struct cuda_launch *at, const char *what, const struct op_norm *o)
{
	int64_t vectors = ceil_div(o->cols, N), held = ceil_div(vectors, NORM_HELD);
	int64_t lanes = power_of_two_from(least(vectors, most(WARP, held)));
	int64_t block = most(lanes, 128), rows = o->rows * o->groups;
	double inverse_cols = 1 / (double)o->cols;

	if (lanes > NORM_FORWARD_LANES)
		return cuda_start(at, what, norm_forward<KIND, T, N, 0>, dim3((unsigned)rows),
		        NORM_FORWARD_LANES, 0, *o, inverse_cols, (int)NORM_FORWARD_LANES);
	return cuda_start(at, what,
	        vectors <= lanes ? norm_forward<KIND, T, N, 1> : norm_forward<KIND, T, N, NORM_HELD>,
	        dim3((unsigned)ceil_div(rows, block / lanes)), (int)block, 0, *o, inverse_cols, (int)lanes);
}

template <enum norm_kind KIND, class T>
static int norm_forward_typed(const struct cuda_launch *at, const char *what, const struct op_norm *o)
{
	int64_t e = sizeof(T);

	if (o->cols % vec_count<T> == 0 &&
	        norm_is_aligned(dev_ptr<void>(o->x), o->x_stride, o->x_group_stride, e) &&
	        norm_is_aligned(dev_ptr<void>(o->y), o->y_stride, o->y_group_stride, e))
		return norm_forward_start<KIND, T, vec_count<T>>(at, what, o);
	return norm_forward_start<KIND, T, 1>(at, what, o);
}

template <enum norm_kind KIND> static int norm_forward_any(const struct cuda_launch *at, const struct op *op)
{
	struct op_norm o = op->norm;

	if (KIND == NORM_RMS)
		o.bias = DEV_NONE;
	if (o.dtype == DTYPE_F32)
		return norm_forward_typed<KIND, float>(at, op_name(op->kind), &o);
	return norm_forward_typed<KIND, bf16>(at, op_name(op->kind), &o);
}

#endif
