/* The largest state of each document, and its gradient. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_pool.h"
}

OP_POOL_LIST(CUDA_DECLARE)

namespace
{

enum { POOL_BLOCK = 128 };

/* A block has one document, a thread some of its columns: neighbours read neighbours. */
template <class T>
__global__ void __launch_bounds__(POOL_BLOCK) max_kernel(
        float *out, int32_t *place, const T *x, const int32_t *first, const int32_t *last, int64_t cols)
{
	const int64_t d = blockIdx.x;
	const int32_t begin = first[d], end = last[d];

	for (int64_t c = threadIdx.x; c < cols; c += POOL_BLOCK) {
		float best = to_float(x[begin * cols + c]);
		int32_t at = begin;

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
}

__global__ void __launch_bounds__(POOL_BLOCK)
        max_grad_kernel(float *dx, const float *dout, const int32_t *place, int64_t cols)
{
	const int64_t d = blockIdx.x;

	for (int64_t c = threadIdx.x; c < cols; c += POOL_BLOCK)
		dx[place[d * cols + c] * cols + c] += dout[d * cols + c];
}

template <class T> int max_start(const struct cuda_launch *at, const struct op_pool_max *o)
{
	return cuda_start(at, "pool_max", max_kernel<T>, dim3((unsigned)o->documents), POOL_BLOCK, 0,
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
	return cuda_start(at, "pool_max_grad", max_grad_kernel, dim3((unsigned)o->documents), POOL_BLOCK, 0,
	        dev_ptr<float>(o->dx), dev_ptr<const float>(o->dout), dev_ptr<const int32_t>(o->place),
	        o->cols);
}
