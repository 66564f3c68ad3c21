/* The gated delta rule token by token, for generation and for what chunks (delta_chunk.cuh) do not take. */
#include "gpu/delta_chunk.cuh"

OP_RECURRENT_LIST(CUDA_DECLARE)

namespace
{

template <class T, int R>
__global__ void __launch_bounds__(DELTA_THREADS) delta_kernel(delta_args<T> p, T *out, int64_t out_stride)
{
	SHARED_DYNAMIC(float, memory);
	const delta_batch s = delta_batch_place(memory, p.dk);
	const int64_t head = blockIdx.x, column = (int64_t)blockIdx.y * DELTA_TILE;
	const int lane = threadIdx.x % WARP;
	const float skip = p.is_scan ? to_float(p.skip[head]) : 0.0f;
	float state[R] = {};

	for (int64_t t0 = 0; t0 < p.tokens; t0 += DELTA_BATCH) {
		const int count = p.tokens - t0 < DELTA_BATCH ? (int)(p.tokens - t0) : (int)DELTA_BATCH;

		__syncthreads(); /* the batch before was read */
		delta_batch_load(s, p, head, column, t0, count);
		__syncthreads();
		for (int i = 0; i < count; i++) {
			const delta_token token = delta_step<R>(state, s, i, p.dk, p.is_scan);

			if (threadIdx.x < WARP && column + lane < p.dv)
				out[(t0 + i) * out_stride + head * p.dv + column + lane] =
				        from_float<T>(token.out + skip * s.v[i * DELTA_TILE + lane]);
		}
	}
}

/* A block has one text's new tokens too: they follow each other. */
template <class T, int R>
__global__ void __launch_bounds__(DELTA_THREADS) delta_cached_kernel(delta_args<T> p, T *out,
        int64_t out_stride, float *memory_of_texts, const int32_t *doc_end, int64_t text_rows)
{
	SHARED_DYNAMIC(float, memory);
	const delta_batch s = delta_batch_place(memory, p.dk);
	const int64_t head = blockIdx.x, column = (int64_t)blockIdx.y * DELTA_TILE, text = blockIdx.z;
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	const float skip = p.is_scan ? to_float(p.skip[head]) : 0.0f;
	float *kept = memory_of_texts + (text * p.value_heads + head) * p.dk * p.dv + column + lane;
	float state[R] = {};
	int has_state = 0;

	for (int64_t t = 0; t < p.tokens; t++) {
		if (p.doc_start[t] / text_rows != text)
			continue;
		if (!has_state)
#pragma unroll
			for (int r = 0; r < R; r++) {
				const int row = warp + r * DELTA_WARPS;

				if (row < p.dk && column + lane < p.dv)
					state[r] = kept[row * p.dv];
			}
		has_state = 1;
		__syncthreads();
		delta_batch_load(s, p, head, column, t, 1);
		if (threadIdx.x == 0)
			s.begins[0] = doc_end[t] - p.doc_start[t] == 1 ? 1.0f : 0.0f;
		__syncthreads();
		{
			const delta_token token = delta_step<R>(state, s, 0, p.dk, p.is_scan);

			if (threadIdx.x < WARP && column + lane < p.dv)
				out[t * out_stride + head * p.dv + column + lane] =
				        from_float<T>(token.out + skip * s.v[lane]);
		}
	}
	if (has_state)
#pragma unroll
		for (int r = 0; r < R; r++) {
			const int row = warp + r * DELTA_WARPS;

			if (row < p.dk && column + lane < p.dv)
				kept[row * p.dv] = state[r];
		}
}

template <class T> int delta_start(const struct cuda_launch *at, const struct op_delta *o)
{
	const dim3 grid((unsigned)o->value_heads, (unsigned)ceil_div(o->value_dim, DELTA_TILE));
	int rc = 0;

#define START(R)                                                                                             \
	cuda_start(at, "delta", delta_kernel<T, R>, grid, DELTA_THREADS, delta_shared_bytes(o->key_dim),     \
	        delta_args_of<T>(o), dev_ptr<T>(o->out), o->out_stride)
	DELTA_ROWS(o->key_dim, rc, START);
#undef START
	return rc;
}

template <class T> int cached_start(const struct cuda_launch *at, const struct op_delta_cached *o)
{
	const dim3 grid(
	        (unsigned)o->value_heads, (unsigned)ceil_div(o->value_dim, DELTA_TILE), (unsigned)o->texts);
	int rc = delta_refuse(o->key_dim, o->value_heads, o->tokens);

#define START(R)                                                                                             \
	cuda_start(at, "delta_cached", delta_cached_kernel<T, R>, grid, DELTA_THREADS,                       \
	        delta_shared_bytes(o->key_dim), delta_args_of<T>(o), dev_ptr<T>(o->out), o->out_stride,      \
	        dev_ptr<float>(o->state), dev_ptr<const int32_t>(o->doc_end), o->text_rows)
	if (!rc)
		DELTA_ROWS(o->key_dim, rc, START);
#undef START
	return rc;
}

} // namespace

extern "C" int cuda_delta(const struct cuda_launch *at, const struct op_delta *o)
{
	const int width = delta_width_of(at, o), rc = delta_refuse(o->key_dim, o->value_heads, o->tokens);

	if (rc || width)
		return rc ? rc : delta_by_chunk(at, o, width);
	return o->dtype == DTYPE_BF16 ? delta_start<bf16>(at, o) : delta_start<float>(at, o);
}

extern "C" int cuda_delta_cached(const struct cuda_launch *at, const struct op_delta_cached *o)
{
	return o->dtype == DTYPE_BF16 ? cached_start<bf16>(at, o) : cached_start<float>(at, o);
}
