/* Dropout, and the noise of embeddings: moves each element twice, or three times where it adds. */
#include "gpu/map.cuh"

extern "C" {
#include "device/noise.h"
#include "device/op_noise.h"
}

OP_NOISE_LIST(CUDA_DECLARE)

namespace
{

/* A block has a part of a row; a thread draws for N neighbouring columns, two from each number. */
enum { NOISE_BLOCK = 128 };

template <class T, int N> __device__ __forceinline__ void row_load(float *value, const T *from)
{
	const vec<T, N> v = *(const vec<T, N> *)from;

#pragma unroll
	for (int i = 0; i < N; i++)
		value[i] = to_float(v.at[i]);
}

template <class T, int N> __device__ __forceinline__ void row_store(T *to, const float *value)
{
	vec<T, N> v;

#pragma unroll
	for (int i = 0; i < N; i++)
		v.at[i] = from_float<T>(value[i]);
	*(vec<T, N> *)to = v;
}

template <class TO, class FROM, int N>
__global__ void __launch_bounds__(NOISE_BLOCK) dropout_kernel(struct op_dropout o)
{
	const int64_t r = blockIdx.x;
	const int64_t c = ((int64_t)blockIdx.y * NOISE_BLOCK + threadIdx.x) * N;
	const uint64_t row = noise_row(dev_ptr<const uint64_t>(o.key)[r], o.module);
	const uint32_t limit = noise_limit(o.share);
	const float scale = (float)(1 / (1 - o.share));
	TO *dst = dev_ptr<TO>(o.dst) + r * o.dst_stride + c;
	float x[N], was[N];

	if (c >= o.cols)
		return;
	row_load<FROM, N>(x, dev_ptr<const FROM>(o.src) + r * o.src_stride + c);
	if (o.accumulate)
		row_load<TO, N>(was, dst);
#pragma unroll
	for (int i = 0; i < N; i++) {
		x[i] = noise_bits(row, c + i) < limit ? 0.0f : __fmul_rn(x[i], scale);
		if (o.accumulate)
			x[i] = __fadd_rn(was[i], x[i]);
	}
	row_store<TO, N>(dst, x);
}

template <class TO, class FROM> int dropout_start(const struct cuda_launch *at, const struct op_dropout *o)
{
	const int is_wide = o->cols % 4 == 0 && o->dst_stride % 4 == 0 && o->src_stride % 4 == 0 &&
	                    is_aligned(dev_ptr<void>(o->dst), 4 * (int64_t)sizeof(TO)) &&
	                    is_aligned(dev_ptr<void>(o->src), 4 * (int64_t)sizeof(FROM));
	const int64_t threads = is_wide ? o->cols / 4 : o->cols;
	const dim3 grid((unsigned)o->rows, (unsigned)ceil_div(threads, (int64_t)NOISE_BLOCK));

	return is_wide ? cuda_start(at, "dropout", dropout_kernel<TO, FROM, 4>, grid, NOISE_BLOCK, 0, *o)
	               : cuda_start(at, "dropout", dropout_kernel<TO, FROM, 1>, grid, NOISE_BLOCK, 0, *o);
}

template <class T> __global__ void __launch_bounds__(NOISE_BLOCK) neftune_kernel(struct op_neftune o)
{
	const int64_t r = blockIdx.x, c = (int64_t)blockIdx.y * NOISE_BLOCK + threadIdx.x;
	const uint64_t row = noise_row(dev_ptr<const uint64_t>(o.key)[r], 0);
	const int tokens = dev_ptr<const int32_t>(o.doc_end)[r] - dev_ptr<const int32_t>(o.doc_start)[r];
	const float most = (float)(o.alpha / sqrt((double)tokens * (double)o.cols));
	T *x = dev_ptr<T>(o.x) + r * o.cols + c;

	if (c < o.cols)
		*x = from_float<T>(
		        __fadd_rn(to_float(*x), __fmul_rn(most, noise_uniform(noise_bits(row, c)))));
}

} // namespace

extern "C" int cuda_dropout(const struct cuda_launch *at, const struct op_dropout *o)
{
	if (o->dst_dtype == DTYPE_F32)
		return o->src_dtype == DTYPE_F32 ? dropout_start<float, float>(at, o)
		                                 : dropout_start<float, bf16>(at, o);
	return o->src_dtype == DTYPE_F32 ? dropout_start<bf16, float>(at, o)
	                                 : dropout_start<bf16, bf16>(at, o);
}

extern "C" int cuda_neftune(const struct cuda_launch *at, const struct op_neftune *o)
{
	const dim3 grid((unsigned)o->rows, (unsigned)ceil_div(o->cols, (int64_t)NOISE_BLOCK));

	return o->dtype == DTYPE_BF16
	               ? cuda_start(at, "neftune", neftune_kernel<bf16>, grid, NOISE_BLOCK, 0, *o)
	               : cuda_start(at, "neftune", neftune_kernel<float>, grid, NOISE_BLOCK, 0, *o);
}
