/* Kernels of rmsnorm and layernorm, backward: teams of threads hold rows as in cuda_norm.cuh. */
#ifndef FERRY_GPU_CUDA_NORM_GRAD_CUH
#define FERRY_GPU_CUDA_NORM_GRAD_CUH

#include "gpu/cuda_norm.cuh"

enum {
	NORM_BACKWARD_LANES = 512, /* the threads of every block */
	NORM_BLOCK_ROWS = 8,       /* of a block, at least: norm_scratch_count */
	NORM_BLOCKS = 128,
};

/* ---- backward, in one pass over memory ---- */

/* The data of one row that a team needs. */
template <class T, int N, int HELD> struct norm_grad_row {
	norm_part<T, N, HELD> dy, x;
	int64_t x_at; /* the first element of x and of dx */
	float rstd, mean;

	template <enum norm_kind KIND>
	__device__ __forceinline__ void load(
	        const struct op_norm_grad &o, int64_t i, int first, int step, int cols)
	{
		norm_place place = norm_place_of(i, o.groups);

		if (cols == 0)
			return;
		x_at = norm_at(place, o.x_stride, o.x_group_stride);
		dy.load(dev_ptr<const T>(o.dy) + norm_at(place, o.y_stride, o.y_group_stride) + first, step,
		        cols - first);
		x.load(dev_ptr<const T>(o.x) + x_at + first, step, cols - first);
		rstd = dev_ptr<const float>(o.rstd)[i];
		mean = KIND == NORM_RMS ? 0 : dev_ptr<const float>(o.mean)[i];
	}
};

/* Loads N elements of a weight. If it is not aligned to 16 bytes, a loop loads it, so that the usual case
 * skips a branch and not N loads. It is held as words, because nvcc splits other structs. */
template <class T, int N> static __device__ __forceinline__ vec<T, N> norm_load_any(const T *from)
{
	vec<T, N> v;

	if constexpr (N == 1) {
		v.at[0] = *from;
	} else {
		vec<uint32_t, 4> words = {};

		if ((uintptr_t)from % sizeof v == 0) {
			words = *(const vec<uint32_t, 4> *)from;
		} else {
#pragma unroll 1
			for (int i = 0; i < N; i += N / 4) {
				vec<T, N / 4> word;

#pragma unroll
				for (int j = 0; j < N / 4; j++)
					word.at[j] = from[i + j];
				words.at[0] = words.at[1];
				words.at[1] = words.at[2];
				words.at[2] = words.at[3];
				memcpy(&words.at[3], &word, 4);
			}
		}
		memcpy(&v, &words, sizeof v);
	}
	return v;
}

/* The weights of a thread. If registers are short (HELD = NORM_HELD), each use loads them from the cache. */
template <class T, int N, int HELD> struct norm_weight {
	const T *from;
	vec<T, N> held[HELD];

	__device__ __forceinline__ norm_weight(dev_addr weight, int first, int step, int cols)
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

/* The factors of a row's dx: dx = rstd (d - mean(d) - h mean(d h)) with d = dy weight and h = (x - mean)
 * rstd, as
 * fma(d, rstd, fma(h, of_h, rest)). */
struct norm_slope {
	float rstd, of_h, rest;
};

/* Computes them from the threads' terms of the sums of d h and of d. `parts` has two places for each warp. */
template <enum norm_kind KIND>
static __device__ __forceinline__ norm_slope norm_slope_of(
        double (&sum)[2], float rstd, double inverse_cols, int lanes, double *parts)
{
	if (KIND == NORM_LAYER)
		team_sum_pair(sum, lanes, parts);
	else
		sum[0] = team_sum(sum[0], lanes, parts);
	return {rstd, -rstd * (float)(sum[0] * inverse_cols),
	        KIND == NORM_RMS ? 0.0f : -rstd * (float)(sum[1] * inverse_cols)};
}

template <enum norm_kind KIND, class T, int N, int HELD>
static __device__ __forceinline__ float norm_h(const norm_grad_row<T, N, HELD> &row, int k, int j)
{
	return (KIND == NORM_RMS ? row.x.at(k, j) : row.x.at(k, j) - row.mean) * row.rstd;
}

template <class T, int N>
static __device__ __forceinline__ void norm_grad_dx(T *at, const norm_slope &slope, const float (&d)[N],
        const float (&h)[N], const span<T, N> &was, int accumulate)
{
	float value[N];
	span<T, N> out;

#pragma unroll
	for (int j = 0; j < N; j++) {
		value[j] = fmaf(d[j], slope.rstd, fmaf(h[j], slope.of_h, slope.rest));
		if (accumulate)
			value[j] += span_get(was, j);
	}
	span_put(out, value);
	span_store(at, out);
}

/* Computes dx of a row, and adds its terms to dweight and dbias. The terms of a vector are summed in fp32,
 * with an error below the rounding of dx; vectors are summed in double. */
template <enum norm_kind KIND, class T, int N, int HELD>
static __device__ __forceinline__ void norm_grad_one(const struct op_norm_grad &o, float (&dweight)[HELD][N],
        float (&dbias)[HELD][N], const norm_grad_row<T, N, HELD> &row, const norm_weight<T, N, HELD> &weight,
        int first, int step, int cols, double inverse_cols, int lanes, double *parts)
{
	T *dx = dev_ptr<T>(o.dx) + row.x_at;
	const float offset = (float)o.weight_offset;
	double sum[2] = {};
	float d[N], h[N];
	norm_slope slope;
	span<T, N> was;

	/* if a register is left, the old dx arrives while the sums are computed */
	if (HELD == 1 && o.accumulate_dx && first < cols)
		span_load(was, dx + first);
#pragma unroll
	for (int k = 0; k < HELD; k++)
		if (first + k * step < cols) {
			vec<T, N> w = weight.at(k, step);
			float dh_sum = 0, d_sum = 0;

#pragma unroll
			for (int j = 0; j < N; j++) {
				float dy = row.dy.at(k, j);

				d[j] = dy * (to_float(w.at[j]) + offset);
				h[j] = norm_h<KIND>(row, k, j);
				dweight[k][j] = fmaf(dy, h[j], dweight[k][j]);
				dh_sum = fmaf(d[j], h[j], dh_sum);
				if (KIND == NORM_LAYER) {
					dbias[k][j] += dy;
					d_sum += d[j];
				}
			}
			sum[0] += (double)dh_sum;
			if (KIND == NORM_LAYER)
				sum[1] += (double)d_sum;
		}
	slope = norm_slope_of<KIND>(sum, row.rstd, inverse_cols, lanes, parts);
#pragma unroll
	for (int k = 0; k < HELD; k++)
		if (first + k * step < cols) {
			if (HELD > 1) {
				vec<T, N> w = weight.at(k, step);

				if (o.accumulate_dx)
					span_load(was, dx + first + k * step);
#pragma unroll
				for (int j = 0; j < N; j++) {
					d[j] = row.dy.at(k, j) * (to_float(w.at[j]) + offset);
					h[j] = norm_h<KIND>(row, k, j);
				}
			}
			norm_grad_dx(dx + first + k * step, slope, d, h, was, o.accumulate_dx);
		}
}

/* Adds the sums of a block's teams in order, and stores them in the block's row of scratch. */
template <int N, int HELD>
static __device__ __forceinline__ void norm_grad_store(
        float *to, const float (&sum)[HELD][N], float *shared, int lanes_log2, int cols)
{
	int span = N << lanes_log2, teams = (int)blockDim.x >> lanes_log2;

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

/* Block b has rows [b * block_rows, (b + 1) * block_rows); its teams take them in turn. They load the next
 * rows while they work on one, as many as registers allow. Bytes moved in bf16: 4 read and 2 written for an
 * element, 2 more read if dx accumulates. Scratch takes 4 or 8 bytes for a column of a block, which
 * norm_combine reads. */
template <enum norm_kind KIND, class T, int N, int HELD>
static __global__ void __launch_bounds__(NORM_BACKWARD_LANES)
        norm_backward(struct op_norm_grad o, double inverse_cols, int lanes_log2, int64_t block_rows)
{
	constexpr int ahead = HELD == 1 ? 2 : HELD == 2 ? 1 : 0;
	const int lanes = 1 << lanes_log2;
	SHARED(double, parts, 4 * WARP);
	SHARED(float, sums, NORM_BACKWARD_LANES *N);
	int64_t begin = (int64_t)blockIdx.x * block_rows, end = begin + block_rows, all = o.rows * o.groups;
	int first = ((int)threadIdx.x & (lanes - 1)) * N, step = lanes * N;
	int teams = (int)blockDim.x >> lanes_log2, cols = (int)o.cols, turn = 0;
	int64_t i = begin + (threadIdx.x >> lanes_log2);
	float dweight[HELD][N] = {}, dbias[HELD][N] = {};
	float *to = dev_ptr<float>(o.scratch) + (KIND == NORM_RMS ? 1 : 2) * o.cols * blockIdx.x;
	norm_grad_row<T, N, HELD> rows[ahead + 1];
	norm_weight<T, N, HELD> weight(o.weight, first, step, cols);

	end = end < all ? end : all;
#pragma unroll
	for (int k = 0; k < ahead; k++)
		rows[k].template load<KIND>(o, i + k * teams, first, step, i + k * teams < end ? cols : 0);
	for (int64_t at = begin; at < end;) {
		/* a copy of this code for each row, so that a row stays in its registers */
#pragma unroll
		for (int k = 0; k <= ahead; k++) {
			int64_t next = i + ahead * teams;

			if (at >= end)
				break;
			rows[(k + ahead) % (ahead + 1)].template load<KIND>(
			        o, next, first, step, next < end ? cols : 0);
			/* a place is used again after two turns, and a barrier lies between the turns */
			norm_grad_one<KIND>(o, dweight, dbias, rows[k], weight, first, step,
			        i < end ? cols : 0, inverse_cols, lanes, parts + turn);
			at += teams;
			i += teams;
			turn ^= 2 * WARP;
		}
	}
	norm_grad_store(to, dweight, sums, lanes_log2, cols);
	if (KIND == NORM_LAYER)
		norm_grad_store(to + cols, dbias, sums, lanes_log2, cols);
}

/* ---- backward of rows that a block cannot hold: the parameters' gradients, then dx ---- */

enum { COLUMN_SLICES = 8 };

/* A block has WARP columns of one block of rows; a warp has every COLUMN_SLICES-th row of them. */
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

/* A block computes one row and reads it twice, the second time from a cache if it fits. */
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
	float rstd = dev_ptr<const float>(o.rstd)[i], offset = (float)o.weight_offset;
	float mean = KIND == NORM_RMS ? 0 : dev_ptr<const float>(o.mean)[i];
	double sum[2] = {};
	norm_slope slope;

	for (int64_t c = first; c < o.cols; c += step) {
		vec<T, N> d = *(const vec<T, N> *)(dy + c), v = *(const vec<T, N> *)(x + c),
		          w = norm_load_any<T, N>(weight + c);
		float dh_sum = 0, d_sum = 0;

#pragma unroll
		for (int j = 0; j < N; j++) {
			float dw = to_float(d.at[j]) * (to_float(w.at[j]) + offset);

			dh_sum = fmaf(dw, (to_float(v.at[j]) - mean) * rstd, dh_sum);
			d_sum += dw;
		}
		sum[0] += (double)dh_sum;
		sum[1] += (double)d_sum;
	}
	slope = norm_slope_of<KIND>(sum, rstd, inverse_cols, (int)blockDim.x, parts);
	for (int64_t c = first; c < o.cols; c += step) {
		vec<T, N> d = *(const vec<T, N> *)(dy + c), v = *(const vec<T, N> *)(x + c),
		          w = norm_load_any<T, N>(weight + c);
		float dw[N], h[N];
		span<T, N> was;

		if (o.accumulate_dx)
			span_load(was, dx + c);
#pragma unroll
		for (int j = 0; j < N; j++) {
			dw[j] = to_float(d.at[j]) * (to_float(w.at[j]) + offset);
			h[j] = (to_float(v.at[j]) - mean) * rstd;
		}
		norm_grad_dx(dx + c, slope, dw, h, was, o.accumulate_dx);
	}
}

/* ---- the blocks' sums: in double, in an order that depends on their number only ---- */

enum { COMBINE_SLICES = 8 };

/* A block has WARP columns of [dweight | dbias]; warp s adds up blocks s, s + COMBINE_SLICES, ... */
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

template <enum norm_kind KIND, class T, int N>
static int norm_backward_start(const struct cuda_launch *at, const char *what, const struct op_norm_grad *o)
{
	int64_t rows = o->rows * o->groups, vectors = ceil_div(o->cols, N);
	int64_t blocks = least(ceil_div(rows, NORM_BLOCK_ROWS), NORM_BLOCKS);
	int64_t block_rows = ceil_div(rows, blocks), held = ceil_div(vectors, NORM_BACKWARD_LANES);
	int lanes_log2 = log2_from(least(vectors, NORM_BACKWARD_LANES));
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
		        dim3((unsigned)blocks), NORM_BACKWARD_LANES, 0, *o, inverse_cols, lanes_log2,
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

template <enum norm_kind KIND>
static int norm_backward_any(const struct cuda_launch *at, const struct op_norm_grad *op)
{
	const char *what = KIND == NORM_RMS ? "rmsnorm_grad" : "layernorm_grad";
	struct op_norm_grad o = *op;

	if (KIND == NORM_RMS)
		o.dbias = DEV_NONE;
	if (o.dtype == DTYPE_F32)
		return norm_backward_typed<KIND, float>(at, what, &o);
	return norm_backward_typed<KIND, bf16>(at, what, &o);
}

#endif
