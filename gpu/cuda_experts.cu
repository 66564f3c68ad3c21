/* Rows of experts: taken from tokens, weighed, and summed for their tokens; the scale of experts. */
#include "gpu/map.cuh"
#include "gpu/rows.cuh"

extern "C" {
#include "device/op_experts.h"
}

OP_EXPERTS_LIST(CUDA_DECLARE)

namespace
{

enum { ROWS_BLOCK = 128, WEIGH_BLOCK = 128 };

/* A block has one row. */
template <class T, int N>
__global__ void __launch_bounds__(ROWS_BLOCK)
        dispatch_kernel(T *y, const T *x, const int32_t *slot, int64_t chosen, int64_t cols, rows_used rows)
{
	const int64_t r = blockIdx.x;

	if (!rows.has(r))
		return;
	x += slot[r] / chosen * cols;
	y += r * cols;
	for (int64_t c = threadIdx.x; c < cols / N; c += ROWS_BLOCK) {
		span<T, N> piece;

		span_load(piece, x + c * N);
		span_store(y + c * N, piece);
	}
}

/* What becomes of y, and the order of the sum. */
struct combine_way {
	int accumulate, is_reversed, goes_on;
};

static_assert((int)ROUTE_CHOSEN_MAX <= (int)ROWS_BLOCK, "a thread for each row of a token");

/* A block has one token. Thread j finds the place of the token's row j in the order of the sum. */
template <class T, class Y, int N>
__global__ void __launch_bounds__(ROWS_BLOCK) combine_kernel(
        Y *y, const T *x, const int32_t *row, int64_t chosen, int64_t cols, combine_way way, rows_used rows)
{
	SHARED(int32_t, sorted, ROUTE_CHOSEN_MAX);
	int64_t count = 0, place = 0;
	const int64_t own = threadIdx.x;

	row += blockIdx.x * chosen;
	y += blockIdx.x * cols;
	for (int64_t j = 0; j < chosen; j++)
		if (rows.has(row[j])) {
			count++;
			if (own < chosen)
				place += way.is_reversed ? row[j] > row[own] : row[j] < row[own];
		}
	if (own < chosen && rows.has(row[own]))
		sorted[place] = row[own];
	__syncthreads();
	if (!count && way.goes_on)
		return;
	for (int64_t c = own; c < cols / N; c += ROWS_BLOCK) {
		float sum[N] = {};

		if (way.goes_on)
#pragma unroll
			for (int i = 0; i < N; i++)
				sum[i] = to_float(y[c * N + i]);
		for (int64_t j = 0; j < count; j++) {
			span<T, N> piece;

			span_load(piece, x + sorted[j] * cols + c * N);
#pragma unroll
			for (int i = 0; i < N; i++)
				sum[i] += span_get(piece, i);
		}
#pragma unroll
		for (int i = 0; i < N; i++) {
			Y *to = y + c * N + i;

			*to = from_float<Y>(way.accumulate ? to_float(*to) + sum[i] : sum[i]);
		}
	}
}

/* A block has one row. Without dx only x is multiplied. */
template <class T>
__global__ void __launch_bounds__(WEIGH_BLOCK) weigh_kernel(
        T *x, T *dx, float *dweights, const float *weights, const int32_t *slot, int64_t cols, rows_used rows)
{
	SHARED(float, sums, WEIGH_BLOCK);
	const int64_t r = blockIdx.x;

	if (!rows.has(r))
		return;
	const int64_t s = slot ? slot[r] : r;
	const float weight = weights[s];
	float sum = 0;

	x += r * cols;
	if (dx)
		dx += r * cols;
	for (int64_t c = threadIdx.x; c < cols; c += WEIGH_BLOCK) {
		const float value = to_float(x[c]);

		if (dx) {
			sum = fmaf(value, to_float(dx[c]), sum);
			dx[c] = from_float<T>(to_float(dx[c]) * weight);
		}
		x[c] = from_float<T>(value * weight);
	}
	if (!dx)
		return;
	sums[threadIdx.x] = sum;
	__syncthreads();
	for (int step = WEIGH_BLOCK / 2; step > 0; step /= 2) {
		if ((int)threadIdx.x < step)
			sums[threadIdx.x] += sums[threadIdx.x + step];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		dweights[s] = sums[0];
}

/* Whether rows of x are whole accesses of 16 bytes. */
template <class T> int rows_are_wide(const T *x, const T *y, int64_t cols)
{
	return is_aligned(x, 16) && is_aligned(y, 16) && cols % vec_count<T> == 0;
}

/* ---- the scale of experts ---- */

enum { SCALE_BLOCK = 256 };

template <class T>
__global__ void __launch_bounds__(SCALE_BLOCK)
        scale_kernel(float *weights, const int32_t *ids, const T *scale, int64_t slots)
{
	const int64_t s = (int64_t)blockIdx.x * SCALE_BLOCK + threadIdx.x;

	if (s < slots)
		weights[s] *= to_float(scale[ids[s]]);
}

/* A block has one expert. */
template <class T>
__global__ void __launch_bounds__(SCALE_BLOCK) scale_grad_kernel(float *dweights, float *dscale,
        const float *weights, const int32_t *first, const int32_t *slot, const T *scale)
{
	SHARED(double, sums, SCALE_BLOCK);
	const int64_t e = blockIdx.x;
	const float factor = to_float(scale[e]);
	double sum = 0;

	for (int64_t r = first[e] + (int64_t)threadIdx.x; r < first[e + 1]; r += SCALE_BLOCK) {
		const int32_t s = slot[r];

		sum += (double)dweights[s] * (double)weights[s];
		dweights[s] *= factor;
	}
	sums[threadIdx.x] = sum;
	__syncthreads();
	for (int step = SCALE_BLOCK / 2; step > 0; step /= 2) {
		if ((int)threadIdx.x < step)
			sums[threadIdx.x] += sums[threadIdx.x + step];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		dscale[e] = (float)(dscale[e] + sums[0]);
}

template <class T> int scale_start(const struct cuda_launch *at, const struct op_expert_scale *o)
{
	const int64_t slots = o->tokens * o->chosen;

	return cuda_start(at, "expert_scale", scale_kernel<T>, dim3((unsigned)ceil_div(slots, SCALE_BLOCK)),
	        SCALE_BLOCK, 0, dev_ptr<float>(o->weights), dev_ptr<const int32_t>(o->ids),
	        dev_ptr<const T>(o->scale), slots);
}

template <class T> int scale_grad_start(const struct cuda_launch *at, const struct op_expert_scale_grad *o)
{
	return cuda_start(at, "expert_scale_grad", scale_grad_kernel<T>, dim3((unsigned)o->experts),
	        SCALE_BLOCK, 0, dev_ptr<float>(o->dweights), dev_ptr<float>(o->dscale),
	        dev_ptr<const float>(o->weights), dev_ptr<const int32_t>(o->first),
	        dev_ptr<const int32_t>(o->slot), dev_ptr<const T>(o->scale));
}

/* ---- launching ---- */

template <class T> int dispatch_start(const struct cuda_launch *at, const struct op_dispatch *o)
{
	T *y = dev_ptr<T>(o->y);
	const T *x = dev_ptr<const T>(o->x);

	return cuda_start(at, "dispatch",
	        rows_are_wide(x, y, o->cols) ? dispatch_kernel<T, vec_count<T>> : dispatch_kernel<T, 1>,
	        dim3((unsigned)(o->tokens * o->chosen)), ROWS_BLOCK, 0, y, x, dev_ptr<const int32_t>(o->slot),
	        o->chosen, o->cols, rows_used_of(&o->range));
}

template <class T, class Y> int combine_start(const struct cuda_launch *at, const struct op_combine *o)
{
	const T *x = dev_ptr<const T>(o->x);
	const combine_way way = {o->accumulate, o->is_reversed, o->goes_on};

	return cuda_start(at, "combine",
	        rows_are_wide(x, x, o->cols) ? combine_kernel<T, Y, vec_count<T>> : combine_kernel<T, Y, 1>,
	        dim3((unsigned)o->tokens), ROWS_BLOCK, 0, dev_ptr<Y>(o->y), x, dev_ptr<const int32_t>(o->row),
	        o->chosen, o->cols, way, rows_used_of(&o->range));
}

template <class T> int weigh_start(const struct cuda_launch *at, const struct op_weigh_grad *o)
{
	return cuda_start(at, "weigh", weigh_kernel<T>, dim3((unsigned)o->rows), WEIGH_BLOCK, 0,
	        dev_ptr<T>(o->x), dev_ptr<T>(o->dx), dev_ptr<float>(o->dweights),
	        dev_ptr<const float>(o->weights), dev_ptr<const int32_t>(o->slot), o->cols,
	        rows_used_of(&o->range));
}

} // namespace

extern "C" int cuda_dispatch(const struct cuda_launch *at, const struct op_dispatch *o)
{
	return o->dtype == DTYPE_F32 ? dispatch_start<float>(at, o) : dispatch_start<bf16>(at, o);
}

extern "C" int cuda_combine(const struct cuda_launch *at, const struct op_combine *o)
{
	if (o->dtype == DTYPE_F32)
		return combine_start<float, float>(at, o);
	return o->y_dtype == DTYPE_F32 ? combine_start<bf16, float>(at, o) : combine_start<bf16, bf16>(at, o);
}

extern "C" int cuda_weigh(const struct cuda_launch *at, const struct op_weigh *op)
{
	struct op_weigh_grad o = {};

	o.x = op->x;
	o.dx = o.dweights = DEV_NONE;
	o.weights = op->weights;
	o.slot = op->slot;
	o.rows = op->rows;
	o.cols = op->cols;
	o.dtype = op->dtype;
	o.range = op->range;
	return cuda_weigh_grad(at, &o);
}

extern "C" int cuda_weigh_grad(const struct cuda_launch *at, const struct op_weigh_grad *o)
{
	return o->dtype == DTYPE_F32 ? weigh_start<float>(at, o) : weigh_start<bf16>(at, o);
}

extern "C" int cuda_expert_scale(const struct cuda_launch *at, const struct op_expert_scale *o)
{
	return o->dtype == DTYPE_F32 ? scale_start<float>(at, o) : scale_start<bf16>(at, o);
}

extern "C" int cuda_expert_scale_grad(const struct cuda_launch *at, const struct op_expert_scale_grad *o)
{
	return o->dtype == DTYPE_F32 ? scale_grad_start<float>(at, o) : scale_grad_start<bf16>(at, o);
}
