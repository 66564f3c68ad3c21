/* Weights with a magnitude for each row (DoRA). Norms read W once, and A once for every few rows;
 * scaling moves each element twice; the gradient reads dy and y once. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_magnitude.h"
}

OP_MAGNITUDE_LIST(CUDA_DECLARE)

namespace
{

enum { NORM_ROWS = 8, NORM_BLOCK = 256, MAGNITUDE_BLOCK = 128, GRAD_WARPS = 8 };

/* A block has NORM_ROWS rows of the weight; a thread every so many of their columns. */
template <class T> __global__ void __launch_bounds__(NORM_BLOCK) row_norms_kernel(struct op_row_norms o)
{
	SHARED(double, part, NORM_ROWS *(NORM_BLOCK / WARP));
	const int64_t row = (int64_t)blockIdx.x * NORM_ROWS;
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	const T *w = dev_ptr<const T>(o.w), *a = dev_ptr<const T>(o.a), *b = dev_ptr<const T>(o.b);
	const float scale = (float)o.scale;
	double total[NORM_ROWS] = {};

	for (int64_t c = threadIdx.x; c < o.in; c += NORM_BLOCK) {
		float sum[NORM_ROWS] = {};

		for (int64_t r = 0; r < o.rank; r++) {
			const float x = to_float(a[r * o.in + c]);

#pragma unroll
			for (int j = 0; j < NORM_ROWS; j++)
				if (row + j < o.out)
					sum[j] = __fadd_rn(
					        sum[j], __fmul_rn(to_float(b[(row + j) * o.rank + r]), x));
		}
#pragma unroll
		for (int j = 0; j < NORM_ROWS; j++)
			if (row + j < o.out) {
				const int64_t at =
				        o.in_out ? c * o.w_stride + row + j : (row + j) * o.w_stride + c;
				const double v = __fadd_rn(to_float(w[at]), __fmul_rn(scale, sum[j]));

				total[j] += v * v;
			}
	}
#pragma unroll
	for (int j = 0; j < NORM_ROWS; j++) {
		total[j] = warp_sum(total[j]);
		if (!lane)
			part[j * (NORM_BLOCK / WARP) + warp] = total[j];
	}
	__syncthreads();
	if (threadIdx.x < NORM_ROWS && row + threadIdx.x < o.out) {
		double all = 0;

		for (int i = 0; i < NORM_BLOCK / WARP; i++)
			all += part[threadIdx.x * (NORM_BLOCK / WARP) + i];
		dev_ptr<float>(o.norm)[row + threadIdx.x] = to_float(from_float<T>((float)sqrt(all)));
	}
}

template <class T, class TO, class FROM>
__global__ void __launch_bounds__(MAGNITUDE_BLOCK) magnitude_kernel(struct op_magnitude o)
{
	const int64_t r = blockIdx.x, c = (int64_t)blockIdx.y * MAGNITUDE_BLOCK + threadIdx.x;
	TO *dst = dev_ptr<TO>(o.dst) + r * o.dst_stride + c;
	float by, value;

	if (c >= o.cols)
		return;
	by = __fsub_rn(__fdiv_rn(to_float(dev_ptr<const T>(o.magnitude)[c]), dev_ptr<const float>(o.norm)[c]),
	        (float)o.minus);
	value = __fmul_rn(by, to_float(dev_ptr<const FROM>(o.src)[r * o.src_stride + c]));
	if (o.bias.value)
		value = __fadd_rn(value, to_float(dev_ptr<const T>(o.bias)[c]));
	*dst = from_float<TO>(o.accumulate ? __fadd_rn(to_float(*dst), value) : value);
}

template <class T, class TO, class FROM>
int magnitude_start(const struct cuda_launch *at, const struct op_magnitude *o)
{
	const dim3 grid((unsigned)o->rows, (unsigned)ceil_div(o->cols, (int64_t)MAGNITUDE_BLOCK));

	return cuda_start(at, "magnitude", magnitude_kernel<T, TO, FROM>, grid, MAGNITUDE_BLOCK, 0, *o);
}

template <class T> int magnitude_of(const struct cuda_launch *at, const struct op_magnitude *o)
{
	if (o->dst_dtype == DTYPE_F32)
		return o->src_dtype == DTYPE_F32 ? magnitude_start<T, float, float>(at, o)
		                                 : magnitude_start<T, float, bf16>(at, o);
	return o->src_dtype == DTYPE_F32 ? magnitude_start<T, bf16, float>(at, o)
	                                 : magnitude_start<T, bf16, bf16>(at, o);
}

/* A block has a column for each lane; a warp every so many rows of them. */
template <class T>
__global__ void __launch_bounds__(GRAD_WARPS *WARP) magnitude_grad_kernel(struct op_magnitude_grad o)
{
	SHARED(double, part, GRAD_WARPS *WARP);
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	const int64_t c = (int64_t)blockIdx.x * WARP + lane;
	double total = 0;

	if (c < o.cols)
		for (int64_t r = warp; r < o.rows; r += GRAD_WARPS)
			total += (double)to_float(dev_ptr<const T>(o.dy)[r * o.dy_stride + c]) *
			         (double)to_float(dev_ptr<const T>(o.y)[r * o.y_stride + c]);
	part[threadIdx.x] = total;
	__syncthreads();
	if (!warp && c < o.cols) {
		float *grad = dev_ptr<float>(o.grad) + c;

		for (int i = 1; i < GRAD_WARPS; i++)
			total += part[i * WARP + lane];
		*grad = (float)(*grad + total / dev_ptr<const float>(o.norm)[c]);
	}
}

} // namespace

extern "C" int cuda_row_norms(const struct cuda_launch *at, const struct op_row_norms *o)
{
	const dim3 grid((unsigned)ceil_div(o->out, (int64_t)NORM_ROWS));

	return o->dtype == DTYPE_BF16
	               ? cuda_start(at, "row_norms", row_norms_kernel<bf16>, grid, NORM_BLOCK, 0, *o)
	               : cuda_start(at, "row_norms", row_norms_kernel<float>, grid, NORM_BLOCK, 0, *o);
}

extern "C" int cuda_magnitude(const struct cuda_launch *at, const struct op_magnitude *o)
{
	return o->dtype == DTYPE_BF16 ? magnitude_of<bf16>(at, o) : magnitude_of<float>(at, o);
}

extern "C" int cuda_magnitude_grad(const struct cuda_launch *at, const struct op_magnitude_grad *o)
{
	const dim3 grid((unsigned)ceil_div(o->cols, (int64_t)WARP));

	return o->dtype == DTYPE_BF16 ? cuda_start(at, "magnitude_grad", magnitude_grad_kernel<bf16>, grid,
	                                        GRAD_WARPS * WARP, 0, *o)
	                              : cuda_start(at, "magnitude_grad", magnitude_grad_kernel<float>, grid,
	                                        GRAD_WARPS * WARP, 0, *o);
}
