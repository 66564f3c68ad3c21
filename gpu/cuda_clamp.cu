/* Values within a limit, and the gradient of that. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_move.h"
}

OP_MOVE_LIST(CUDA_DECLARE)

namespace
{

enum { CLAMP_BLOCK = 256 };

template <class T>
__global__ void __launch_bounds__(CLAMP_BLOCK) clamp_kernel(
        T *y, const T *x, int64_t rows, int64_t cols, int64_t y_stride, int64_t x_stride, float limit)
{
	const int64_t i = (int64_t)blockIdx.x * CLAMP_BLOCK + threadIdx.x;

	if (i >= rows * cols)
		return;
	const float value = to_float(x[i / cols * x_stride + i % cols]);

	y[i / cols * y_stride + i % cols] = from_float<T>(value > limit    ? limit
	                                                  : value < -limit ? -limit
	                                                                   : value);
}

template <class T>
__global__ void __launch_bounds__(CLAMP_BLOCK) clamp_grad_kernel(
        T *dx, const T *x, int64_t rows, int64_t cols, int64_t dx_stride, int64_t x_stride, float limit)
{
	const int64_t i = (int64_t)blockIdx.x * CLAMP_BLOCK + threadIdx.x;

	if (i < rows * cols && fabsf(to_float(x[i / cols * x_stride + i % cols])) > limit)
		dx[i / cols * dx_stride + i % cols] = from_float<T>(0);
}

dim3 blocks_of(int64_t rows, int64_t cols)
{
	return dim3((unsigned)ceil_div(rows * cols, CLAMP_BLOCK));
}

template <class T> int clamp_start(const struct cuda_launch *at, const struct op_clamp *o)
{
	return cuda_start(at, "clamp", clamp_kernel<T>, blocks_of(o->rows, o->cols), CLAMP_BLOCK, 0,
	        dev_ptr<T>(o->y), dev_ptr<const T>(o->x), o->rows, o->cols, o->y_stride, o->x_stride,
	        (float)o->limit);
}

template <class T> int clamp_grad_start(const struct cuda_launch *at, const struct op_clamp_grad *o)
{
	return cuda_start(at, "clamp_grad", clamp_grad_kernel<T>, blocks_of(o->rows, o->cols), CLAMP_BLOCK, 0,
	        dev_ptr<T>(o->dx), dev_ptr<const T>(o->x), o->rows, o->cols, o->dx_stride, o->x_stride,
	        (float)o->limit);
}

} // namespace

extern "C" int cuda_clamp(const struct cuda_launch *at, const struct op_clamp *o)
{
	return o->dtype == DTYPE_F32 ? clamp_start<float>(at, o) : clamp_start<bf16>(at, o);
}

extern "C" int cuda_clamp_grad(const struct cuda_launch *at, const struct op_clamp_grad *o)
{
	return o->dtype == DTYPE_F32 ? clamp_grad_start<float>(at, o) : clamp_grad_start<bf16>(at, o);
}
