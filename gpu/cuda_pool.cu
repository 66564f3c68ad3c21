/* The largest state of each document, and its gradient. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_pool.h"
}

OP_POOL_LIST(CUDA_DECLARE)

namespace
{

enum { POOL_BLOCK = 128 };

/* A block has some columns of one document, a thread one of them: neighbours read neighbours. */
__device__ __forceinline__ int64_t column_of()
{
	return (int64_t)blockIdx.y * POOL_BLOCK + threadIdx.x;
}

template <class T>
__global__ void __launch_bounds__(POOL_BLOCK) max_kernel(
        float *out, int32_t *place, const T *x, const int32_t *first, const int32_t *last, int64_t cols)
{
	const int64_t d = blockIdx.x, c = column_of();
	const int32_t begin = first[d], end = last[d];
	int32_t at = begin;
	float best;

	if (c >= cols)
		return;
	best = to_float(x[begin * cols + c]);
	for (int32_t r = begin + 1; r <= end; r++) {
		const float value = to_float(x[r * cols + c]);

		if (value > best || (value != value && best == best)) {
			best = value;
			at = r;
		}
	}
	out[d * cols + c] = best;
	place[d * cols + c] = at;
}

__global__ void __launch_bounds__(POOL_BLOCK)
        max_grad_kernel(float *dx, const float *dout, const int32_t *place, int64_t cols)
{
	const int64_t d = blockIdx.x, c = column_of();

	if (c < cols)
		dx[place[d * cols + c] * cols + c] += dout[d * cols + c];
}

dim3 grid_of(int64_t documents, int64_t cols)
{
	return dim3((unsigned)documents, (unsigned)ceil_div(cols, POOL_BLOCK));
}

template <class T> int max_start(const struct cuda_launch *at, const struct op_pool_max *o)
{
	return cuda_start(at, "pool_max", max_kernel<T>, grid_of(o->documents, o->cols), POOL_BLOCK, 0,
	        dev_ptr<float>(o->out), dev_ptr<int32_t>(o->place), dev_ptr<const T>(o->x),
	        dev_ptr<const int32_t>(o->first), dev_ptr<const int32_t>(o->last), o->cols);
}

} // namespace

extern "C" int cuda_pool_max(const struct cuda_launch *at, const struct op_pool_max *o)
{
	return o->dtype == DTYPE_F32 ? max_start<float>(at, o) : max_start<bf16>(at, o);
}

extern "C" int cuda_pool_max_grad(const struct cuda_launch *at, const struct op_pool_max_grad *o)
{
	return cuda_start(at, "pool_max_grad", max_grad_kernel, grid_of(o->documents, o->cols), POOL_BLOCK, 0,
	        dev_ptr<float>(o->dx), dev_ptr<const float>(o->dout), dev_ptr<const int32_t>(o->place),
	        o->cols);
}
