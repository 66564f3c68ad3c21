/* Kernels of rmsnorm and layernorm, backward: rows are held by teams of threads as cuda_norm.cuh says. */
#ifndef FERRY_GPU_CUDA_CUDA_NORM_GRAD_CUH
#define FERRY_GPU_CUDA_CUDA_NORM_GRAD_CUH

#include "gpu/cuda/cuda_norm.cuh"

enum {
	NORM_BACKWARD_LANES = 512, /* the threads of every block */
	NORM_BLOCK_ROWS = 8,       /* at least, of a block: norm_scratch_count */
	NORM_BLOCKS = 128,
};

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
