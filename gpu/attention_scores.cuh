/* From scores of queries and keys in registers to probabilities, forward, and to their gradients. */
#ifndef FERRY_GPU_ATTENTION_SCORES_CUH
#define FERRY_GPU_ATTENTION_SCORES_CUH

#include "gpu/attention.cuh"

/* ---- the running softmax of a warp's rows: M x 2 rows per thread; 4 threads share a row ---- */

template <int M> struct softmax {
	float max[M][2], sum[M][2]; /* max: of unscaled scores; sum: of this thread's columns */
};

/* How far, in powers of two, scores may rise above the subtracted maximum before all sums are scaled to a new
 * one. After the first tiles that is rare. Probabilities up to 2^8 are as exact as those up to 1, and the
 * division at the end removes the factor. */
static constexpr float SLACK = 8;

/* Turns scores into probabilities relative to the maximum. */
template <int M, int N, int DN>
static __device__ __forceinline__ void softmax_step(
        softmax<M> &x, float (&s)[M][N][4], float (&o)[M][DN][4], float scale_log2)
{
	float high[M][2];
	int rises = 0;

#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float top = x.max[m][half];

#pragma unroll
			for (int n = 0; n < N; n++)
				top = fmaxf(top, fmaxf(s[m][n][half * 2], s[m][n][half * 2 + 1]));
			top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
			top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
			high[m][half] = top;
			rises |= (top - x.max[m][half]) * scale_log2 > SLACK;
		}
	if (__any_sync(0xffffffffu, rises)) {
#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int half = 0; half < 2; half++) {
				float keep =
				        exp2_fast(x.max[m][half] * scale_log2 - high[m][half] * scale_log2);

				/* a row that has seen no key yet: -inf - -inf, and nothing to keep */
				keep = high[m][half] == -INFINITY ? 0.0f : keep;
				x.max[m][half] = high[m][half];
				x.sum[m][half] *= keep;
#pragma unroll
				for (int n = 0; n < DN; n++) {
					o[m][n][half * 2] *= keep;
					o[m][n][half * 2 + 1] *= keep;
				}
			}
	}
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float base = x.max[m][half] == -INFINITY ? 0.0f : x.max[m][half] * scale_log2,
			      sum = 0;

#pragma unroll
			for (int n = 0; n < N; n++)
#pragma unroll
				for (int i = half * 2; i < half * 2 + 2; i++) {
					s[m][n][i] = exp2_fast(fmaf(s[m][n][i], scale_log2, -base));
					sum += s[m][n][i];
				}
			x.sum[m][half] += sum;
		}
}

/* ---- backward ---- */

/* The inputs of both passes; lse_log2 and delta are F32 [heads, tokens]. */
struct grad_inputs {
	const bf16 *dout, *q, *k, *v;
	const float *lse_log2, *delta;
};

/* Turns scores s into ds = p (dp - delta), with p = exp2(s scale_log2 - lse), times the slope of the cap. */
template <int ANY, int M, int N>
static __device__ __forceinline__ void dq_scores(float (&s)[M][N][4], const float (&dp)[M][N][4],
        const float (&lse_log2)[M][2], const float (&delta)[M][2], const attention_shape &p)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int c = 0; c < 4; c++) {
				float slope = ANY ? cap_slope(s[m][n][c], p) : 1.0f;

				s[m][n][c] = exp2_fast(fmaf(s[m][n][c], p.scale_log2, -lse_log2[m][c / 2])) *
				             (dp[m][n][c] - delta[m][c / 2]) * slope;
			}
}

/* Sets scores to -inf where a query (column) does not see a key (row). `query` is the thread's first;
 * queries from first[m][half] to end[m][half] - 1 see a key. */
template <int M, int N>
static __device__ __forceinline__ void dkv_mask(
        float (&s)[M][N][4], int query, const int (&first)[M][2], const int (&end)[M][2])
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int low = first[m][half] - query, high = end[m][half] - query;

#pragma unroll
			for (int n = 0; n < N; n++)
#pragma unroll
				for (int c = 0; c < 2; c++)
					if (n * 8 + c < low || n * 8 + c >= high)
						s[m][n][half * 2 + c] = -INFINITY;
		}
}

/* w = exp2(s scale_log2 - lse), the probabilities of scores s. */
template <int M, int N>
static __device__ __forceinline__ void dkv_probabilities(
        float (&w)[M][N][4], const float (&s)[M][N][4], const float *lse, const attention_shape &p)
{
#pragma unroll
	for (int n = 0; n < N; n++) {
		const vec<float, 2> high = *(const vec<float, 2> *)(lse + n * 8);

#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int c = 0; c < 4; c++)
				w[m][n][c] = exp2_fast(fmaf(s[m][n][c], p.scale_log2, -high.at[c % 2]));
	}
}

/* Turns scores s into ds = w (dp - delta), times the slope of the cap. */
template <int ANY, int M, int N>
static __device__ __forceinline__ void dkv_scores(float (&s)[M][N][4], const float (&w)[M][N][4],
        const float (&dp)[M][N][4], const float *delta, const attention_shape &p)
{
#pragma unroll
	for (int n = 0; n < N; n++) {
		const vec<float, 2> off = *(const vec<float, 2> *)(delta + n * 8);

#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int c = 0; c < 4; c++)
				s[m][n][c] = w[m][n][c] * (dp[m][n][c] - off.at[c % 2]) *
				             (ANY ? cap_slope(s[m][n][c], p) : 1.0f);
	}
}

/* Loads q, lse and delta of TQ queries from i0 on. */
template <int D, int TQ, int THREADS>
static __device__ __forceinline__ void dkv_load_q(
        bf16 *q_tile, float *stats, const attention_shape &p, const grad_inputs &in, int head, int i0)
{
	int i = i0 + (int)threadIdx.x % TQ;
	const float *from = (int)threadIdx.x < TQ ? in.lse_log2 : in.delta;

	static_assert(THREADS >= 2 * TQ, "a thread for each");
	tile_load<D, TQ, THREADS>(
	        q_tile, in.q + i0 * p.qkv_stride + head * p.q_head_stride, p.qkv_stride, p.tokens - i0, p);
	if (threadIdx.x < 2 * TQ)
		cp_async_4(stats + threadIdx.x, from + (int64_t)head * p.tokens + min(i, p.tokens - 1),
		        i < p.tokens ? 4 : 0);
}

template <int D, int TQ, int THREADS>
static __device__ __forceinline__ void dkv_load_dout(
        bf16 *dout_tile, const attention_shape &p, const grad_inputs &in, int head, int i0)
{
	tile_load<D, TQ, THREADS>(dout_tile, in.dout + i0 * p.out_stride + (int64_t)head * p.head_dim,
	        p.out_stride, p.tokens - i0, p);
}

#endif
