/* RMSNorm with a gate beside it: a warp computes a row of a group. */
#include "gpu/act.cuh"

extern "C" {
#include "base/err.h"
#include "device/op_recurrent.h"
}

OP_RECURRENT_LIST(CUDA_DECLARE)

namespace
{

enum { GATED_WARPS = 4, GATED_THREADS = GATED_WARPS * WARP };

template <class T> struct gated_args {
	const T *x, *gate, *weight;
	float *rstd;
	int64_t rows, groups, cols, x_stride, gate_stride, y_stride;
	int is_weight_by_group, is_before;
	double epsilon;
};

template <class T, class O> gated_args<T> gated_args_of(const O *o, double epsilon)
{
	return {dev_ptr<const T>(o->x), dev_ptr<const T>(o->gate), dev_ptr<const T>(o->weight),
	        dev_ptr<float>(o->rstd), o->rows, o->groups, o->cols, o->x_stride, o->gate_stride,
	        o->y_stride, o->weight_groups > 1, o->order == GATE_BEFORE_NORM, epsilon};
}

/* One element of a row: its gate through silu, what the norm takes, and its weight. */
struct gated_one {
	float x, silu, slope, normed, weight;
};

template <class T>
__device__ __forceinline__ gated_one one_load(const gated_args<T> &p, int64_t row, int64_t group, int64_t c)
{
	gated_one e;

	e.x = to_float(p.x[row * p.x_stride + group * p.cols + c]);
	act_both<float, ACT_SILU>(
	        to_float(p.gate[row * p.gate_stride + group * p.cols + c]), ACT_SILU, &e.silu, &e.slope);
	e.normed = p.is_before ? e.x * e.silu : e.x;
	e.weight = to_float(p.weight[(p.is_weight_by_group ? group * p.cols : 0) + c]);
	return e;
}

template <class T> __global__ void __launch_bounds__(GATED_THREADS) gated_kernel(gated_args<T> p, T *y)
{
	const int64_t item = (int64_t)blockIdx.x * GATED_WARPS + threadIdx.x / WARP;
	const int64_t row = item / p.groups, group = item % p.groups;
	const int lane = threadIdx.x % WARP;
	double square = 0;
	float rstd;

	if (row >= p.rows)
		return;
	for (int64_t c = lane; c < p.cols; c += WARP) {
		const float x = one_load(p, row, group, c).normed;

		square += (double)x * (double)x;
	}
	rstd = (float)(1 / sqrt(warp_sum(square) / (double)p.cols + p.epsilon));
	if (lane == 0)
		p.rstd[item] = rstd;
	for (int64_t c = lane; c < p.cols; c += WARP) {
		const gated_one e = one_load(p, row, group, c);

		y[row * p.y_stride + group * p.cols + c] =
		        from_float<T>(e.normed * rstd * e.weight * (p.is_before ? 1.0f : e.silu));
	}
}

/* Sums of dweight of a block of rows, a column a thread. Before dx and dgate, which may lie over the inputs.
 */
template <class T>
__global__ void __launch_bounds__(GATED_THREADS)
        gated_dweight(gated_args<T> p, const T *dy, float *scratch, int64_t block_rows)
{
	const int64_t item = (int64_t)blockIdx.x * GATED_THREADS + threadIdx.x, width = p.groups * p.cols;
	const int64_t first = (int64_t)blockIdx.y * block_rows;
	const int64_t end = first + block_rows < p.rows ? first + block_rows : p.rows;
	float sum = 0.0f;

	if (item >= width)
		return;
	for (int64_t row = first; row < end; row++) {
		const gated_one e = one_load(p, row, item / p.cols, item % p.cols);
		const float d = to_float(dy[row * p.y_stride + item]) * (p.is_before ? 1.0f : e.silu);

		sum = fmaf(d, e.normed * p.rstd[row * p.groups + item / p.cols], sum);
	}
	scratch[(int64_t)blockIdx.y * width + item] = sum;
}

__global__ void __launch_bounds__(GATED_THREADS)
        gated_combine(float *dweight, const float *scratch, int64_t count, int64_t width, int64_t blocks)
{
	const int64_t c = (int64_t)blockIdx.x * GATED_THREADS + threadIdx.x;
	double sum = 0;

	if (c >= count)
		return;
	for (int64_t b = 0; b < blocks; b++)
		for (int64_t at = c; at < width; at += count)
			sum += (double)scratch[b * width + at];
	dweight[c] = (float)((double)dweight[c] + sum);
}

/* An element is read by its own thread before it is written, and by no other. */
template <class T>
__global__ void __launch_bounds__(GATED_THREADS)
        gated_grad_kernel(gated_args<T> p, T *dx, T *dgate, const T *dy)
{
	const int64_t item = (int64_t)blockIdx.x * GATED_WARPS + threadIdx.x / WARP;
	const int64_t row = item / p.groups, group = item % p.groups;
	const int lane = threadIdx.x % WARP;
	const float rstd = row < p.rows ? p.rstd[item] : 0.0f;
	double along = 0;
	float mean;

	if (row >= p.rows)
		return;
	for (int64_t c = lane; c < p.cols; c += WARP) {
		const gated_one e = one_load(p, row, group, c);
		const float d =
		        to_float(dy[row * p.y_stride + group * p.cols + c]) * (p.is_before ? 1.0f : e.silu);

		along += (double)(d * e.weight) * (double)(e.normed * rstd);
	}
	mean = (float)(warp_sum(along) / (double)p.cols);
	for (int64_t c = lane; c < p.cols; c += WARP) {
		const gated_one e = one_load(p, row, group, c);
		const float dout = to_float(dy[row * p.y_stride + group * p.cols + c]);
		const float d = dout * e.weight * (p.is_before ? 1.0f : e.silu);
		const float dnormed = rstd * fmaf(-e.normed * rstd, mean, d);
		const float dgate_of = p.is_before ? dnormed * e.x : dout * e.weight * e.x * rstd;

		dx[row * p.x_stride + group * p.cols + c] =
		        from_float<T>(p.is_before ? dnormed * e.silu : dnormed);
		dgate[row * p.gate_stride + group * p.cols + c] = from_float<T>(dgate_of * e.slope);
	}
}

int gated_check(int64_t rows, int64_t groups, int64_t cols)
{
	if (rows * groups <= INT32_MAX && groups * cols <= INT32_MAX)
		return 0;
	return err_set(ERR_UNSUPPORTED, "gated_norm: %lld rows of %lld x %lld are too many", (long long)rows,
	        (long long)groups, (long long)cols);
}

template <class T> int forward_start(const struct cuda_launch *at, const struct op_gated_norm *o)
{
	int rc = gated_check(o->rows, o->groups, o->cols);

	return rc ? rc
	          : cuda_start(at, "gated_norm", gated_kernel<T>,
	                    dim3((unsigned)ceil_div(o->rows * o->groups, GATED_WARPS)), GATED_THREADS, 0,
	                    gated_args_of<T>(o, o->epsilon), dev_ptr<T>(o->y));
}

template <class T> int backward_start(const struct cuda_launch *at, const struct op_gated_norm_grad *o)
{
	const gated_args<T> p = gated_args_of<T>(o, 0);
	const int64_t width = o->groups * o->cols,
	              each = ceil_div(o->rows, gated_norm_scratch_count(o->rows, 1, 1));
	const int64_t blocks = ceil_div(o->rows, each), count = o->weight_groups * o->cols;
	const T *dy = dev_ptr<const T>(o->dy);
	int rc = gated_check(o->rows, o->groups, o->cols);

	if (!rc)
		rc = cuda_start(at, "gated_norm_grad", gated_dweight<T>,
		        dim3((unsigned)ceil_div(width, GATED_THREADS), (unsigned)blocks), GATED_THREADS, 0, p,
		        dy, dev_ptr<float>(o->scratch), each);
	if (!rc)
		rc = cuda_start(at, "gated_norm_grad", gated_combine,
		        dim3((unsigned)ceil_div(count, GATED_THREADS)), GATED_THREADS, 0,
		        dev_ptr<float>(o->dweight), dev_ptr<const float>(o->scratch), count, width, blocks);
	if (!rc)
		rc = cuda_start(at, "gated_norm_grad", gated_grad_kernel<T>,
		        dim3((unsigned)ceil_div(o->rows * o->groups, GATED_WARPS)), GATED_THREADS, 0, p,
		        dev_ptr<T>(o->dx), dev_ptr<T>(o->dgate), dy);
	return rc;
}

} // namespace

extern "C" int cuda_gated_norm(const struct cuda_launch *at, const struct op_gated_norm *o)
{
	return o->dtype == DTYPE_BF16 ? forward_start<bf16>(at, o) : forward_start<float>(at, o);
}

extern "C" int cuda_gated_norm_grad(const struct cuda_launch *at, const struct op_gated_norm_grad *o)
{
	return o->dtype == DTYPE_BF16 ? backward_start<bf16>(at, o) : backward_start<float>(at, o);
}
