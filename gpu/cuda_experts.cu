/* Rows of experts: taken from tokens, weighed, and summed for their tokens. */
#include "gpu/map.cuh"

extern "C" {
#include "device/op_experts.h"
}

OP_EXPERTS_LIST(CUDA_DECLARE)

namespace
{

enum { ROWS_BLOCK = 256, WEIGH_BLOCK = 128 };

template <class T>
__global__ void __launch_bounds__(ROWS_BLOCK)
        dispatch_kernel(T *y, const T *x, const int32_t *slot, int64_t rows, int64_t chosen, int64_t cols)
{
	const int64_t i = (int64_t)blockIdx.x * ROWS_BLOCK + threadIdx.x;

	if (i < rows * cols)
		y[i] = x[slot[i / cols] / chosen * cols + i % cols];
}

template <class T, class Y>
__global__ void __launch_bounds__(ROWS_BLOCK) combine_kernel(
        Y *y, const T *x, const int32_t *row, int64_t tokens, int64_t chosen, int64_t cols, int accumulate)
{
	const int64_t i = (int64_t)blockIdx.x * ROWS_BLOCK + threadIdx.x;
	float sum = 0;

	if (i >= tokens * cols)
		return;
	row += i / cols * chosen;
	for (int64_t j = 0; j < chosen; j++)
		sum += to_float(x[row[j] * cols + i % cols]);
	y[i] = from_float<Y>(accumulate ? to_float(y[i]) + sum : sum);
}

/* A block has one row. Without dx only x is multiplied. */
template <class T>
__global__ void __launch_bounds__(WEIGH_BLOCK)
        weigh_kernel(T *x, T *dx, float *dweights, const float *weights, const int32_t *slot, int64_t cols)
{
	SHARED(float, sums, WEIGH_BLOCK);
	const int64_t r = blockIdx.x, s = slot ? slot[r] : r;
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

template <class T> int dispatch_start(const struct cuda_launch *at, const struct op_dispatch *o)
{
	return cuda_start(at, "dispatch", dispatch_kernel<T>,
	        dim3((unsigned)ceil_div(o->tokens * o->chosen * o->cols, ROWS_BLOCK)), ROWS_BLOCK, 0,
	        dev_ptr<T>(o->y), dev_ptr<const T>(o->x), dev_ptr<const int32_t>(o->slot),
	        o->tokens * o->chosen, o->chosen, o->cols);
}

template <class T, class Y> int combine_start(const struct cuda_launch *at, const struct op_combine *o)
{
	return cuda_start(at, "combine", combine_kernel<T, Y>,
	        dim3((unsigned)ceil_div(o->tokens * o->cols, ROWS_BLOCK)), ROWS_BLOCK, 0, dev_ptr<Y>(o->y),
	        dev_ptr<const T>(o->x), dev_ptr<const int32_t>(o->row), o->tokens, o->chosen, o->cols,
	        o->accumulate);
}

template <class T> int weigh_start(const struct cuda_launch *at, const struct op_weigh_grad *o)
{
	return cuda_start(at, "weigh", weigh_kernel<T>, dim3((unsigned)o->rows), WEIGH_BLOCK, 0,
	        dev_ptr<T>(o->x), dev_ptr<T>(o->dx), dev_ptr<float>(o->dweights),
	        dev_ptr<const float>(o->weights), dev_ptr<const int32_t>(o->slot), o->cols);
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
	return cuda_weigh_grad(at, &o);
}

extern "C" int cuda_weigh_grad(const struct cuda_launch *at, const struct op_weigh_grad *o)
{
	return o->dtype == DTYPE_F32 ? weigh_start<float>(at, o) : weigh_start<bf16>(at, o);
}
