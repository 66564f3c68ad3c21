/* The gated delta rule on the GPU, token by token (device/op_recurrent.h has the rule).
 *
 * A block has one value head and DELTA_TILE columns of its state: columns do not depend on each other. Lane l
 * of each warp has column l, warp w the rows w, w + DELTA_WARPS, ...: R of them, in registers. A sum over
 * rows goes through shared memory, a sum over columns through a warp. Tokens are loaded by batches. A token
 * needs two barriers.
 */
#ifndef FERRY_GPU_DELTA_CUH
#define FERRY_GPU_DELTA_CUH

#include "gpu/kernel.cuh"

extern "C" {
#include "base/err.h"
#include "device/op_recurrent.h"
}

enum { DELTA_WARPS = 8, DELTA_THREADS = DELTA_WARPS * WARP, DELTA_BATCH = 16, DELTA_ROWS_MAX = 32 };

template <class T> struct delta_args {
	const T *q, *k, *v, *a, *b, *decay, *dt_bias, *skip;
	const int32_t *doc_start;
	int64_t tokens, key_heads, value_heads, dk, dv, qkv_stride, gate_stride;
	float scale, epsilon, low, high;
	int is_scan; /* DELTA_SCAN */
};

template <class T, class O> delta_args<T> delta_args_of(const O *o)
{
	return {dev_ptr<const T>(o->q), dev_ptr<const T>(o->k), dev_ptr<const T>(o->v),
	        dev_ptr<const T>(o->a), dev_ptr<const T>(o->b), dev_ptr<const T>(o->decay),
	        dev_ptr<const T>(o->dt_bias), dev_ptr<const T>(o->skip), dev_ptr<const int32_t>(o->doc_start),
	        o->tokens, o->key_heads, o->value_heads, o->key_dim, o->value_dim, o->qkv_stride,
	        o->gate_stride, (float)o->scale, (float)o->epsilon, (float)o->low, (float)o->high,
	        o->rule == DELTA_SCAN};
}

/* The tokens of a batch in shared memory. */
struct delta_batch {
	float *q, *k;          /* [DELTA_BATCH][dk], of length 1, q times scale */
	float *v, *x;          /* [DELTA_BATCH][DELTA_TILE]: v, and a second array of the same kind */
	float *beta, *keep;    /* [DELTA_BATCH]: exp(g) */
	float *begins;         /* [DELTA_BATCH]: 1 where a document begins */
	float *sum, *sum_more; /* [DELTA_WARPS][DELTA_TILE] */
};

static inline int64_t delta_shared_bytes(int64_t dk)
{
	return 4 * (DELTA_BATCH * (2 * dk + 2 * DELTA_TILE + 3) + 2 * DELTA_WARPS * DELTA_TILE);
}

static __device__ __forceinline__ delta_batch delta_batch_place(float *memory, int64_t dk)
{
	delta_batch s;

	s.q = memory;
	s.k = s.q + DELTA_BATCH * dk;
	s.v = s.k + DELTA_BATCH * dk;
	s.x = s.v + DELTA_BATCH * DELTA_TILE;
	s.beta = s.x + DELTA_BATCH * DELTA_TILE;
	s.keep = s.beta + DELTA_BATCH;
	s.begins = s.keep + DELTA_BATCH;
	s.sum = s.begins + DELTA_BATCH;
	s.sum_more = s.sum + DELTA_WARPS * DELTA_TILE;
	return s;
}

/* A gate of one token and head: g, dg/da, and sigmoid(b); of a scan, the step and its slope. */
struct delta_gate_value {
	float g, slope, sigmoid, step_slope;
};

static __device__ __forceinline__ float delta_softplus(float x)
{
	return x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

template <class T>
static __device__ __forceinline__ delta_gate_value delta_scan_gate_at(
        const delta_args<T> &p, int64_t t, int64_t head)
{
	const float x =
	        to_float(from_float<T>(to_float(p.a[t * p.gate_stride + head]) + to_float(p.dt_bias[head])));
	const float speed = expf(to_float(p.decay[head]));
	const float step = to_float(from_float<T>(delta_softplus(x)));
	const float low = to_float(from_float<T>(p.low)), high = to_float(from_float<T>(p.high));
	/* a NaN is below and above nothing, and stays */
	const float kept = step < low ? low : step > high ? high : step;
	const float step_slope = step < low || step > high ? 0.0f : 1.0f / (1.0f + expf(-x));

	return {-speed * kept, -speed * step_slope, kept, step_slope};
}

template <class T>
static __device__ __forceinline__ delta_gate_value delta_gate_at(
        const delta_args<T> &p, int64_t t, int64_t head)
{
	const float x = to_float(p.a[t * p.gate_stride + head]) + to_float(p.dt_bias[head]);
	const float speed = expf(to_float(p.decay[head]));

	if (p.is_scan)
		return delta_scan_gate_at(p, t, head);
	return {-speed * delta_softplus(x), -speed / (1.0f + expf(-x)),
	        1.0f / (1.0f + expf(-to_float(p.b[t * p.gate_stride + head]))), 0.0f};
}

/* One warp: a row of q or k over its length (of a scan, as it is) times `factor`. */
template <class T>
static __device__ __forceinline__ void delta_unit_load(
        float *to, const T *from, int64_t dk, float epsilon, float factor, int is_scan)
{
	const int lane = threadIdx.x % WARP;
	float square = 0.0f, length;

	for (int64_t d = lane; d < dk && !is_scan; d += WARP) {
		float x = to_float(from[d]);

		square = fmaf(x, x, square);
	}
	length = is_scan ? factor : factor / sqrtf(warp_sum(square) + epsilon);
	for (int64_t d = lane; d < dk; d += WARP)
		to[d] = to_float(from[d]) * length;
}

/* Columns of tokens [t0, t0 + count) of an array [tokens, heads * dv]. */
template <class T>
static __device__ __forceinline__ void delta_columns_load(float *to, const delta_args<T> &p, const T *from,
        int64_t stride, int64_t head, int64_t column, int64_t t0, int count)
{
	const int lane = threadIdx.x % WARP;

	for (int i = threadIdx.x / WARP; i < count; i += DELTA_WARPS)
		to[i * DELTA_TILE + lane] =
		        column + lane < p.dv ? to_float(from[(t0 + i) * stride + head * p.dv + column + lane])
		                             : 0.0f;
}

/* Barriers before and after are the caller's. */
template <class T>
static __device__ __forceinline__ void delta_batch_load(
        const delta_batch &s, const delta_args<T> &p, int64_t head, int64_t column, int64_t t0, int count)
{
	const int64_t key = head / (p.value_heads / p.key_heads);

	for (int i = threadIdx.x / WARP; i < count; i += DELTA_WARPS) {
		const int64_t at = (t0 + i) * p.qkv_stride + key * p.dk;

		delta_unit_load(s.q + i * p.dk, p.q + at, p.dk, p.epsilon, p.scale, p.is_scan);
		delta_unit_load(s.k + i * p.dk, p.k + at, p.dk, p.epsilon, 1.0f, p.is_scan);
	}
	delta_columns_load(s.v, p, p.v, p.qkv_stride, head, column, t0, count);
	if ((int)threadIdx.x < count) {
		const int64_t t = t0 + threadIdx.x;
		const delta_gate_value gate = delta_gate_at(p, t, head);

		s.beta[threadIdx.x] = to_float(from_float<T>(gate.sigmoid));
		s.keep[threadIdx.x] = expf(gate.g);
		s.begins[threadIdx.x] = p.doc_start[t] == t ? 1.0f : 0.0f;
	}
}

/* The sum over warps of what each put into its row of `parts`; after a barrier. */
static __device__ __forceinline__ float delta_warps_sum(const float *parts)
{
	float sum = 0.0f;

#pragma unroll
	for (int w = 0; w < DELTA_WARPS; w++)
		sum += parts[w * DELTA_TILE + threadIdx.x % WARP];
	return sum;
}

/* What a token leaves for its gradient: v - k S before its update (of a scan, v), and its output, without a
 * scan's skip. */
struct delta_token {
	float rest, out;
};

/* One token of the batch: its update of the state, and its output (valid after the call's second barrier). */
template <int R>
static __device__ __forceinline__ delta_token delta_step(
        float (&state)[R], const delta_batch &s, int i, int64_t dk, int is_scan)
{
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	const float *q = s.q + i * dk, *k = s.k + i * dk, keep = s.begins[i] != 0.0f ? 0.0f : s.keep[i];
	/* a scan has one barrier a token, so its sums change places */
	float *sums = is_scan && i % 2 ? s.sum : s.sum_more;
	float read = 0.0f, out = 0.0f, fresh;
	delta_token token;

#pragma unroll
	for (int r = 0; r < R; r++) {
		const int row = warp + r * DELTA_WARPS;

		state[r] *= keep;
		if (row < dk)
			read = fmaf(k[row], state[r], read);
	}
	token.rest = s.v[i * DELTA_TILE + lane];
	if (!is_scan) {
		s.sum[threadIdx.x] = read;
		__syncthreads();
		token.rest -= delta_warps_sum(s.sum);
	}
	fresh = s.beta[i] * token.rest;
#pragma unroll
	for (int r = 0; r < R; r++) {
		const int row = warp + r * DELTA_WARPS;

		if (row < dk) {
			state[r] = fmaf(k[row], fresh, state[r]);
			out = fmaf(q[row], state[r], out);
		}
	}
	sums[threadIdx.x] = out;
	__syncthreads();
	token.out = delta_warps_sum(sums);
	return token;
}

/* Calls START(R) with the smallest R that holds key_dim rows; `rc` takes its result. */
#define DELTA_ROWS(key_dim, rc, START)                                                                       \
	do {                                                                                                 \
		if ((key_dim) <= 4 * DELTA_WARPS)                                                            \
			rc = START(4);                                                                       \
		else if ((key_dim) <= 8 * DELTA_WARPS)                                                       \
			rc = START(8);                                                                       \
		else if ((key_dim) <= 16 * DELTA_WARPS)                                                      \
			rc = START(16);                                                                      \
		else                                                                                         \
			rc = START(32);                                                                      \
	} while (0)

static inline int delta_refuse(int64_t key_dim, int64_t value_heads, int64_t tokens)
{
	if (key_dim > DELTA_ROWS_MAX * DELTA_WARPS)
		return err_set(ERR_UNSUPPORTED,
		        "delta: heads of %lld numbers in q and k; the GPU's kernels take at most %d",
		        (long long)key_dim, DELTA_ROWS_MAX * DELTA_WARPS);
	if (value_heads > INT32_MAX || tokens > INT32_MAX / 64)
		return err_set(ERR_UNSUPPORTED, "delta: %lld heads, %lld tokens are too many",
		        (long long)value_heads, (long long)tokens);
	return 0;
}

#endif
