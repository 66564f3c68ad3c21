/* Kernels of rmsnorm and layernorm, forward and backward: rmsnorm is layernorm whose mean is 0, as in
 * host/cpu/cpu_norm.c, whose order of operations on an element this follows.
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
	NORM_BACKWARD_LANES = 512, /* the threads of every block */
	NORM_HELD = 4,
	NORM_BLOCK_ROWS = 8, /* at least, of a block of the backward pass: norm_scratch_count */
	NORM_BLOCKS = 128,
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

/* ---- backward, in one pass over memory ---- */

/* What a team needs of one row. */
template <class T, int N, int HELD> struct norm_grad_row {
	norm_part<T, N, HELD> dy, x;
	int64_t x_at; /* where x starts, and dx */
	float rstd, mean;

	template <enum norm_kind KIND>
	__device__ __forceinline__ void load(
	        const struct op_norm_grad &o, int64_t i, int first, int step, int64_t cols)
	{
		norm_place place = norm_place_of(i, o.groups);

		if (cols == 0)
			return;
		x_at = norm_at(place, o.x_stride, o.x_group_stride);
		dy.load(dev_ptr<const T>(o.dy) + norm_at(place, o.y_stride, o.y_group_stride), first, step,
		        cols);
		x.load(dev_ptr<const T>(o.x) + x_at, first, step, cols);
		rstd = dev_ptr<const float>(o.rstd)[i];
		mean = KIND == NORM_RMS ? 0 : dev_ptr<const float>(o.mean)[i];
	}
};

/* The weights of a thread; where registers are short, from the cache at each use. */
template <class T, int N, int HELD> struct norm_weight {
	const T *from;
	vec<T, N> held[HELD];

	__device__ __forceinline__ norm_weight(dev_addr weight, int first, int step, int64_t cols)
	    : from(dev_ptr<const T>(weight) + first)
	{
#pragma unroll
		for (int k = 0; k < HELD; k++)
			if (HELD < NORM_HELD && first + k * step < cols)
				held[k] = norm_load_any<T, N>(from + k * step);
	}
	__device__ __forceinline__ vec<T, N> at(int k, int step) const
	{
		return HELD < NORM_HELD ? held[k] : norm_load_any<T, N>(from + k * step);
	}
};

/* dx of an element, the sums divided by cols. */
static __device__ __forceinline__ float norm_dx(
        float dy, float x, float weight, float mean, float rstd, float mean_g, float mean_gx)
{
	return rstd * (dy * weight - mean_g - (x - mean) * rstd * mean_gx);
}

template <enum norm_kind KIND, class T, int N, int HELD>
static __device__ __forceinline__ void norm_grad_one(const struct op_norm_grad &o,
        const norm_grad_row<T, N, HELD> &row, const norm_weight<T, N, HELD> &weight, int first, int step,
        int64_t cols, double inverse_cols, int lanes, double *g_parts, double *gx_parts)
{
	T *dx = dev_ptr<T>(o.dx) + row.x_at;
	double g = 0, gx = 0;
	float mean_g, mean_gx;
	span<T, N> was;

	/* what dx is added to arrives while the sums are formed, where a register is left for it */
	if (HELD == 1 && o.accumulate_dx && first < cols)
		span_load(was, dx + first);
#pragma unroll
	for (int k = 0; k < HELD; k++)
		if (first + k * step < cols) {
			vec<T, N> w = weight.at(k, step);

#pragma unroll
			for (int j = 0; j < N; j++) {
				float d = row.dy.at(k, j) * to_float(w.at[j]);

				gx += (double)(d * (row.x.at(k, j) - row.mean));
				if (KIND == NORM_LAYER)
					g += (double)d;
			}
		}
	if (KIND == NORM_LAYER)
		g = team_sum(g, lanes, g_parts);
	gx = team_sum(gx, lanes, gx_parts);
	mean_g = (float)(g * inverse_cols);
	mean_gx = cols ? (float)(gx * row.rstd * inverse_cols) : 0;
#pragma unroll
	for (int k = 0; k < HELD; k++)
		if (first + k * step < cols) {
			T *at = dx + first + k * step;
			vec<T, N> w = weight.at(k, step);
			float value[N];

			if (HELD > 1 && o.accumulate_dx)
				span_load(was, at);
#pragma unroll
			for (int j = 0; j < N; j++) {
				value[j] = norm_dx(row.dy.at(k, j), row.x.at(k, j), to_float(w.at[j]),
				        row.mean, row.rstd, mean_g, mean_gx);
				if (o.accumulate_dx)
					value[j] += span_get(was, j);
			}
			span_put(was, value);
			span_store(at, was);
		}
}

/* A row's terms of dweight and dbias. */
template <enum norm_kind KIND, class T, int N, int HELD>
static __device__ __forceinline__ void norm_grad_add(float (&dweight)[HELD][N], float (&dbias)[HELD][N],
        const norm_grad_row<T, N, HELD> &row, int first, int step, int64_t cols)
{
#pragma unroll
	for (int k = 0; k < HELD; k++)
		if (first + k * step < cols)
#pragma unroll
			for (int j = 0; j < N; j++) {
				float dy = row.dy.at(k, j);

				dweight[k][j] =
				        fmaf(dy, (row.x.at(k, j) - row.mean) * row.rstd, dweight[k][j]);
				if (KIND == NORM_LAYER)
					dbias[k][j] += dy;
			}
}

/* The sums of a block's teams, in their order, into the block's row of scratch. */
template <int N, int HELD>
static __device__ __forceinline__ void norm_grad_store(
        float *to, const float (&sum)[HELD][N], float *shared, int lanes, int64_t cols)
{
	int span = lanes * N, teams = (int)blockDim.x / lanes;

#pragma unroll
	for (int k = 0; k < HELD; k++) {
		__syncthreads();
#pragma unroll
		for (int j = 0; j < N; j++)
			shared[(int)threadIdx.x * N + j] = sum[k][j];
		__syncthreads();
		for (int c = (int)threadIdx.x; c < span && k * span + c < cols; c += (int)blockDim.x) {
			float total = 0;

			for (int t = 0; t < teams; t++)
				total += shared[t * span + c];
			to[k * span + c] = total;
		}
	}
}

/* Block b has rows [b * block_rows, (b + 1) * block_rows); its teams take them in turn, and ask for the next
 * ones while they work on one: as many as registers allow. Bytes of bf16: 4 read and 2 written an element, 2
 * more read if dx accumulates; 4 or 8 an element of scratch, which norm_combine reads. */
template <enum norm_kind KIND, class T, int N, int HELD>
static __global__ void __launch_bounds__(NORM_BACKWARD_LANES)
        norm_backward(struct op_norm_grad o, double inverse_cols, int lanes, int64_t block_rows)
{
	constexpr int ahead = HELD == 1 ? 2 : HELD == 2 && (KIND == NORM_RMS || N <= 4) ? 1 : 0;
	SHARED(double, parts, 4 * WARP);
	SHARED(float, sums, NORM_BACKWARD_LANES *N);
	int64_t begin = (int64_t)blockIdx.x * block_rows, end = begin + block_rows, all = o.rows * o.groups;
	int first = (int)threadIdx.x % lanes * N, step = lanes * N, teams = (int)blockDim.x / lanes;
	int64_t i = begin + (int)threadIdx.x / lanes;
	float dweight[HELD][N] = {}, dbias[HELD][N] = {};
	float *to = dev_ptr<float>(o.scratch) + (KIND == NORM_RMS ? 1 : 2) * o.cols * blockIdx.x;
	norm_grad_row<T, N, HELD> rows[ahead + 1];
	norm_weight<T, N, HELD> weight(o.weight, first, step, o.cols);

	end = end < all ? end : all;
#pragma unroll
	for (int k = 0; k < ahead; k++)
		rows[k].template load<KIND>(o, i + k * teams, first, step, i + k * teams < end ? o.cols : 0);
	for (int64_t at = begin, turn = 0; at < end; at += teams, i += teams, turn ^= 1) {
		int64_t cols = i < end ? o.cols : 0, next = i + ahead * teams;

		rows[ahead].template load<KIND>(o, next, first, step, next < end ? o.cols : 0);
		norm_grad_add<KIND>(dweight, dbias, rows[0], first, step, cols);
		/* two turns lie between the uses of a place, and a barrier between the turns */
		norm_grad_one<KIND>(o, rows[0], weight, first, step, cols, inverse_cols, lanes,
		        parts + 2 * WARP * turn, parts + 2 * WARP * turn + WARP);
#pragma unroll
		for (int k = 0; k < ahead; k++)
			rows[k] = rows[k + 1];
	}
	norm_grad_store(to, dweight, sums, lanes, o.cols);
	if (KIND == NORM_LAYER)
		norm_grad_store(to + o.cols, dbias, sums, lanes, o.cols);
}

/* ---- backward of rows that a block cannot hold: the parameters' gradients, then dx ---- */

enum { COLUMN_SLICES = 8 };

/* A block of WARP columns and one block of rows; a warp has every COLUMN_SLICES-th row of them. */
template <enum norm_kind KIND, class T>
static __global__ void __launch_bounds__(COLUMN_SLICES *WARP)
        norm_columns(struct op_norm_grad o, int64_t block_rows)
{
	SHARED(float, weight_parts, COLUMN_SLICES *WARP);
	SHARED(float, bias_parts, COLUMN_SLICES *WARP);
	int64_t begin = (int64_t)blockIdx.y * block_rows, end = begin + block_rows, all = o.rows * o.groups;
	int64_t c = (int64_t)blockIdx.x * WARP + threadIdx.x % WARP;
	float *to = dev_ptr<float>(o.scratch) + (KIND == NORM_RMS ? 1 : 2) * o.cols * blockIdx.y;
	float dweight = 0, dbias = 0;

	end = end < all ? end : all;
	if (c < o.cols)
		for (int64_t i = begin + threadIdx.x / WARP; i < end; i += COLUMN_SLICES) {
			norm_place place = norm_place_of(i, o.groups);
			int64_t x_at = norm_at(place, o.x_stride, o.x_group_stride);
			int64_t y_at = norm_at(place, o.y_stride, o.y_group_stride);
			float dy = to_float(dev_ptr<const T>(o.dy)[y_at + c]);
			float x = to_float(dev_ptr<const T>(o.x)[x_at + c]);
			float mean = KIND == NORM_RMS ? 0 : dev_ptr<const float>(o.mean)[i];

			dweight = fmaf(dy, (x - mean) * dev_ptr<const float>(o.rstd)[i], dweight);
			dbias += dy;
		}
	weight_parts[threadIdx.x] = dweight;
	bias_parts[threadIdx.x] = dbias;
	__syncthreads();
	if (threadIdx.x >= WARP || c >= o.cols)
		return;
	for (int s = 1; s < COLUMN_SLICES; s++) {
		dweight += weight_parts[s * WARP + threadIdx.x];
		dbias += bias_parts[s * WARP + threadIdx.x];
	}
	to[c] = dweight;
	if (KIND == NORM_LAYER)
		to[o.cols + c] = dbias;
}

/* A block and one row, which is read twice (the second time from a cache, if it fits). */
template <enum norm_kind KIND, class T, int N>
static __global__ void __launch_bounds__(NORM_BACKWARD_LANES)
        norm_long_dx(struct op_norm_grad o, double inverse_cols)
{
	SHARED(double, parts, 2 * WARP);
	int64_t i = blockIdx.x, first = threadIdx.x * N, step = (int64_t)blockDim.x * N;
	norm_place place = norm_place_of(i, o.groups);
	const T *dy = dev_ptr<const T>(o.dy) + norm_at(place, o.y_stride, o.y_group_stride);
	int64_t x_at = norm_at(place, o.x_stride, o.x_group_stride);
	const T *x = dev_ptr<const T>(o.x) + x_at, *weight = dev_ptr<const T>(o.weight);
	T *dx = dev_ptr<T>(o.dx) + x_at;
	float rstd = dev_ptr<const float>(o.rstd)[i];
	float mean = KIND == NORM_RMS ? 0 : dev_ptr<const float>(o.mean)[i], mean_g, mean_gx;
	double g = 0, gx = 0;

	for (int64_t c = first; c < o.cols; c += step) {
		vec<T, N> d = *(const vec<T, N> *)(dy + c), v = *(const vec<T, N> *)(x + c),
		          w = norm_load_any<T, N>(weight + c);

#pragma unroll
		for (int j = 0; j < N; j++) {
			float dw = to_float(d.at[j]) * to_float(w.at[j]);

			gx += (double)(dw * (to_float(v.at[j]) - mean));
			g += (double)dw;
		}
	}
	g = KIND == NORM_RMS ? 0 : team_sum(g, (int)blockDim.x, parts);
	gx = team_sum(gx, (int)blockDim.x, parts + WARP);
	mean_g = (float)(g * inverse_cols);
	mean_gx = (float)(gx * rstd * inverse_cols);
	for (int64_t c = first; c < o.cols; c += step) {
		vec<T, N> d = *(const vec<T, N> *)(dy + c), v = *(const vec<T, N> *)(x + c),
		          w = norm_load_any<T, N>(weight + c), *at = (vec<T, N> *)(dx + c), out;

		if (o.accumulate_dx)
			out = *at;
#pragma unroll
		for (int j = 0; j < N; j++) {
			float value = norm_dx(to_float(d.at[j]), to_float(v.at[j]), to_float(w.at[j]), mean,
			        rstd, mean_g, mean_gx);

			if (o.accumulate_dx)
				value += to_float(out.at[j]);
			out.at[j] = from_float<T>(value);
		}
		*at = out;
	}
}

/* ---- the blocks' sums: in double, in an order that depends on their number only ---- */

enum { COMBINE_SLICES = 8 };

/* A block of WARP columns of [dweight | dbias]; warp s adds up blocks s, s + COMBINE_SLICES, ... */
template <enum norm_kind KIND>
static __global__ void __launch_bounds__(COMBINE_SLICES *WARP)
        norm_combine(struct op_norm_grad o, int64_t block_count)
{
	SHARED(double, parts, COMBINE_SLICES *WARP);
	int64_t width = (KIND == NORM_RMS ? 1 : 2) * o.cols;
	int64_t c = (int64_t)blockIdx.x * WARP + threadIdx.x % WARP;
	const float *from = dev_ptr<const float>(o.scratch) + c;
	double sum = 0;
	float *to;

	if (c < width)
		for (int64_t b = threadIdx.x / WARP; b < block_count; b += COMBINE_SLICES)
			sum += (double)from[b * width];
	parts[threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.x >= WARP || c >= width)
		return;
	for (int s = 1; s < COMBINE_SLICES; s++)
		sum += parts[s * WARP + threadIdx.x];
	to = c < o.cols ? dev_ptr<float>(o.dweight) + c : dev_ptr<float>(o.dbias) + (c - o.cols);
	if (c < o.cols || o.dbias.value)
		*to = (float)((double)*to + sum);
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

template <enum norm_kind KIND, class T, int N>
static int norm_backward_start(const struct cuda_launch *at, const char *what, const struct op_norm_grad *o)
{
	int64_t rows = o->rows * o->groups, vectors = ceil_div(o->cols, N);
	int64_t blocks = least(ceil_div(rows, NORM_BLOCK_ROWS), NORM_BLOCKS);
	int64_t block_rows = ceil_div(rows, blocks), held = ceil_div(vectors, NORM_BACKWARD_LANES);
	int64_t lanes = power_of_two_from(least(vectors, NORM_BACKWARD_LANES));
	dim3 bands((unsigned)ceil_div((KIND == NORM_RMS ? 1 : 2) * o->cols, WARP));
	double inverse_cols = 1 / (double)o->cols;
	int rc;

	blocks = ceil_div(rows, block_rows);
	if (held > NORM_HELD) {
		rc = cuda_start(at, what, norm_columns<KIND, T>,
		        dim3((unsigned)ceil_div(o->cols, WARP), (unsigned)blocks), COLUMN_SLICES * WARP, 0,
		        *o, block_rows);
		if (!rc)
			rc = cuda_start(at, what, norm_long_dx<KIND, T, N>, dim3((unsigned)rows),
			        NORM_BACKWARD_LANES, 0, *o, inverse_cols);
	} else {
		rc = cuda_start(at, what,
		        held == 1   ? norm_backward<KIND, T, N, 1>
		        : held == 2 ? norm_backward<KIND, T, N, 2>
		                    : norm_backward<KIND, T, N, NORM_HELD>,
		        dim3((unsigned)blocks), NORM_BACKWARD_LANES, 0, *o, inverse_cols, (int)lanes,
		        block_rows);
	}
	if (!rc)
		rc = cuda_start(at, what, norm_combine<KIND>, bands, COMBINE_SLICES * WARP, 0, *o, blocks);
	return rc;
}

template <enum norm_kind KIND, class T>
static int norm_backward_typed(const struct cuda_launch *at, const char *what, const struct op_norm_grad *o)
{
	int64_t e = sizeof(T);

	if (o->cols % vec_count<T> == 0 &&
	        norm_is_aligned(dev_ptr<void>(o->x), o->x_stride, o->x_group_stride, e) &&
	        norm_is_aligned(dev_ptr<void>(o->dy), o->y_stride, o->y_group_stride, e) &&
	        is_aligned(dev_ptr<void>(o->dx), 16))
		return norm_backward_start<KIND, T, vec_count<T>>(at, what, o);
	return norm_backward_start<KIND, T, 1>(at, what, o);
}

template <enum norm_kind KIND> static int norm_backward_any(const struct cuda_launch *at, const struct op *op)
{
	struct op_norm_grad o = op->norm_grad;

	if (KIND == NORM_RMS)
		o.dbias = DEV_NONE;
	if (o.dtype == DTYPE_F32)
		return norm_backward_typed<KIND, float>(at, op_name(op->kind), &o);
	return norm_backward_typed<KIND, bf16>(at, op_name(op->kind), &o);
}

#endif
