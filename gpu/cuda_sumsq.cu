/* Sums of squares of a gradient in blocks, alone or while it is rounded to bf16. */
#include "gpu/map.cuh"

extern "C" {
#include "device/op_optim.h"
}

OP_OPTIM_LIST(CUDA_DECLARE)

/* The order of sums is that of sumsq_blocks (optim/adamw.h). A block of elements is 16 runs of 4096; a run is
 * 64 lanes that each add up every 64th element. Lanes, then runs, are halved until one is left. One thread
 * block has one block of elements: 1024 lanes of 64 steps. A thread has the N lanes of a vector, so that
 * neighbours read neighbouring bytes.
 *
 * Bytes: 2 or 4 read for an element. Arithmetic: a conversion to double and a fused multiply-add for an
 * element. The square of a float is exact in double, so this rounds as the host's product and sum do. At the
 * rate of its memory an H100 does half of the conversions that it can do. On a card with 1/64 rate they are
 * the kernel's limit: two thirds of the memory's rate with bf16.
 *
 * cast_sumsq also rounds: 4 bytes read and 2 written for an element. A cast and a sum of squares one after
 * the other move 8. */

enum {
	RUNS = 16,
	LANES = 64,
	STEPS = SUMSQ_BLOCK / RUNS / LANES,
	STEPS_AHEAD = 8, /* loads of a thread before the first is used */
};

/* Adds up a block of elements from the N lanes of each thread. */
template <int N> static __device__ __forceinline__ void sumsq_reduce(double *partial, double sum[N])
{
	SHARED(double, run_sums, RUNS);
	const int lane = (int)threadIdx.x * N % LANES, run = (int)threadIdx.x * N / LANES;

	/* lane j += lane j + half: over threads (a run has at most 32, except for N = 1), then in the thread
	 */
	if (N == 1) {
		SHARED(double, upper, RUNS *LANES / N);

		upper[threadIdx.x] = sum[0];
		__syncthreads();
		sum[0] += upper[threadIdx.x ^ (LANES / 2)];
	}
	for (int half = N == 1 ? LANES / 4 : LANES / 2; half >= N; half /= 2)
#pragma unroll
		for (int j = 0; j < N; j++)
			sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], half / N);
#pragma unroll
	for (int half = N / 2; half; half /= 2)
#pragma unroll
		for (int j = 0; j < half; j++)
			sum[j] += sum[j + half];
	if (lane == 0)
		run_sums[run] = sum[0];
	__syncthreads();
	if (threadIdx.x < WARP) {
		double total = run_sums[threadIdx.x % RUNS];

		for (int half = RUNS / 2; half; half /= 2)
			total += __shfl_xor_sync(0xffffffffu, total, half);
		if (threadIdx.x == 0)
			partial[blockIdx.x] = total;
	}
}

template <class T, int N>
static __global__ void __launch_bounds__(RUNS *LANES / N)
        sumsq_kernel(double *partial, const T *x, int64_t count)
{
	const int lane = (int)threadIdx.x * N % LANES, run = (int)threadIdx.x * N / LANES;
	const int64_t first = (int64_t)blockIdx.x * SUMSQ_BLOCK + run * (LANES * STEPS) + lane;
	double sum[N] = {};

	for (int step = 0; step < STEPS; step += STEPS_AHEAD) {
		vec<T, N> v[STEPS_AHEAD];

#pragma unroll
		for (int k = 0; k < STEPS_AHEAD; k++) {
			int64_t i = first + (step + k) * LANES;

			if (i + N <= count) {
				v[k] = *(const vec<T, N> *)(x + i);
			} else { /* 0 adds nothing, and no sum is -0 */
#pragma unroll
				for (int j = 0; j < N; j++)
					v[k].at[j] = i + j < count ? x[i + j] : T{};
			}
		}
#pragma unroll
		for (int k = 0; k < STEPS_AHEAD; k++)
#pragma unroll
			for (int j = 0; j < N; j++) {
				double d = (double)to_float(v[k].at[j]);

				sum[j] = fma(d, d, sum[j]);
			}
	}
	sumsq_reduce<N>(partial, sum);
}

/* The bits are those of a cast and a sum of squares of its results. */
template <int N>
static __global__ void __launch_bounds__(RUNS *LANES / N)
        cast_sumsq_kernel(double *partial, bf16 *dst, const float *x, int64_t count)
{
	const int lane = (int)threadIdx.x * N % LANES, run = (int)threadIdx.x * N / LANES;
	const int64_t first = (int64_t)blockIdx.x * SUMSQ_BLOCK + run * (LANES * STEPS) + lane;
	double sum[N] = {};

	for (int step = 0; step < STEPS; step += STEPS_AHEAD) {
		vec<float, N> v[STEPS_AHEAD];

#pragma unroll
		for (int k = 0; k < STEPS_AHEAD; k++) {
			int64_t i = first + (step + k) * LANES;

			if (i + N <= count) {
				v[k] = *(const vec<float, N> *)(x + i);
			} else {
#pragma unroll
				for (int j = 0; j < N; j++)
					v[k].at[j] = i + j < count ? x[i + j] : 0.0f;
			}
		}
#pragma unroll
		for (int k = 0; k < STEPS_AHEAD; k++) {
			int64_t i = first + (step + k) * LANES;
			vec<bf16, N> rounded;

#pragma unroll
			for (int j = 0; j < N; j++) {
				rounded.at[j].bits = (uint16_t)bf16_bits(v[k].at[j]);
				double d = (double)to_float(rounded.at[j]);

				sum[j] = fma(d, d, sum[j]);
			}
			if (i + N <= count) {
				*(vec<bf16, N> *)(dst + i) = rounded;
			} else {
#pragma unroll
				for (int j = 0; j < N; j++)
					if (i + j < count)
						dst[i + j] = rounded.at[j];
			}
		}
	}
	sumsq_reduce<N>(partial, sum);
}

template <class T> static int sumsq_start(const struct cuda_launch *at, const struct op_sumsq *o)
{
	double *partial = dev_ptr<double>(o->partial);
	const T *x = dev_ptr<const T>(o->x);
	dim3 grid((unsigned)ceil_div(o->count, SUMSQ_BLOCK));

	if (!is_aligned(x, 16))
		return cuda_start(
		        at, "sumsq", sumsq_kernel<T, 1>, grid, RUNS * LANES, 0, partial, x, o->count);
	return cuda_start(at, "sumsq", sumsq_kernel<T, vec_count<T>>, grid, RUNS * LANES / vec_count<T>, 0,
	        partial, x, o->count);
}

extern "C" int cuda_sumsq(const struct cuda_launch *at, const struct op_sumsq *o)
{
	if (o->dtype == DTYPE_F32)
		return sumsq_start<float>(at, o);
	return sumsq_start<bf16>(at, o);
}

extern "C" int cuda_cast_sumsq(const struct cuda_launch *at, const struct op_cast_sumsq *o)
{
	double *partial = dev_ptr<double>(o->partial);
	bf16 *dst = dev_ptr<bf16>(o->dst);
	const float *x = dev_ptr<const float>(o->src);
	dim3 grid((unsigned)ceil_div(o->count, SUMSQ_BLOCK));

	if (!is_aligned(x, 16) || !is_aligned(dst, 8))
		return cuda_start(at, "cast_sumsq", cast_sumsq_kernel<1>, grid, RUNS * LANES, 0, partial, dst,
		        x, o->count);
	return cuda_start(
	        at, "cast_sumsq", cast_sumsq_kernel<4>, grid, RUNS * LANES / 4, 0, partial, dst, x, o->count);
}
