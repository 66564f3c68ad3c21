/* The gradient of the gated delta rule, token by token in three sweeps over the tokens and two passes over
 * their results.
 *
 *     1. forward: the states again. dq = S dO; keeps v - k S of each token, and sums o . dO
 *     2. backward: dS. dk = dS u for k as it writes; dv; sums v . dv and dbeta
 *     3. forward: the states again. dk -= S dv for k as it reads (not in a scan)
 *     4. the sums of a head's gates: dg of a token is the sum of o . dO - v . dv over what follows in its
 *        document
 *     5. dq and dk over the value heads of a key head, and back through the lengths
 *
 * Sweeps run for DELTA_TILE columns of all heads at a time and add to what the columns before left. By chunks
 * (delta_chunk.cuh) other kernels take the place of 1 to 3, and leave the sums of 4. */
#include "gpu/delta_chunk.cuh"

OP_RECURRENT_LIST(CUDA_DECLARE)

namespace
{

/* A head's part of the scratch. */
struct delta_parts {
	float *dq, *dk;               /* [tokens][dk] */
	float *rest, *dv;             /* [tokens][DELTA_TILE], of the present columns; v - k S and dv */
	float *from_out, *from_value; /* [tokens]: o . dO, v . dv */
	float *dbeta, *dskip;         /* [tokens]; dskip: v . dO of a scan */
};

__device__ __forceinline__ delta_parts parts_of(float *scratch, int64_t head, int64_t tokens, int64_t dk)
{
	delta_parts s;

	s.dq = scratch + head * tokens * (2 * dk + 2 * DELTA_TILE + 4);
	s.dk = s.dq + tokens * dk;
	s.rest = s.dk + tokens * dk;
	s.dv = s.rest + tokens * DELTA_TILE;
	s.from_out = s.dv + tokens * DELTA_TILE;
	s.from_value = s.from_out + tokens;
	s.dbeta = s.from_value + tokens;
	s.dskip = s.dbeta + tokens;
	return s;
}

/* Adds the sum of x over the warp's columns, or stores it for the first columns. */
__device__ __forceinline__ void columns_add(float *to, float x, int is_first)
{
	x = warp_sum(x);
	if (threadIdx.x % WARP == 0)
		*to = is_first ? x : *to + x;
}

template <class T, int R>
__global__ void __launch_bounds__(DELTA_THREADS)
        delta_outputs(delta_args<T> p, const T *dout, int64_t out_stride, float *scratch, int64_t column)
{
	SHARED_DYNAMIC(float, memory);
	const delta_batch s = delta_batch_place(memory, p.dk);
	const int64_t head = blockIdx.x;
	const delta_parts parts = parts_of(scratch, head, p.tokens, p.dk);
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	float state[R] = {};

	for (int64_t t0 = 0; t0 < p.tokens; t0 += DELTA_BATCH) {
		const int count = p.tokens - t0 < DELTA_BATCH ? (int)(p.tokens - t0) : (int)DELTA_BATCH;

		__syncthreads();
		delta_batch_load(s, p, head, column, t0, count);
		delta_columns_load(s.x, p, dout, out_stride, head, column, t0, count);
		__syncthreads();
		for (int i = 0; i < count; i++) {
			const delta_token token = delta_step<R>(state, s, i, p.dk, p.is_scan);
			const int64_t t = t0 + i;
			const float d = s.x[i * DELTA_TILE + lane];

#pragma unroll
			for (int r = 0; r < R; r++) {
				const int row = warp + r * DELTA_WARPS;

				if (row < p.dk)
					columns_add(parts.dq + t * p.dk + row, state[r] * d * p.scale,
					        column == 0);
			}
			if (warp == 0) {
				parts.rest[t * DELTA_TILE + lane] = token.rest;
				columns_add(parts.from_out + t, token.out * d, column == 0);
			}
		}
	}
}

/* state holds dS of the state after the token. */
template <class T, int R>
__global__ void __launch_bounds__(DELTA_THREADS)
        delta_back(delta_args<T> p, T *dv, const T *dout, int64_t out_stride, float *scratch, int64_t column)
{
	SHARED_DYNAMIC(float, memory);
	const delta_batch s = delta_batch_place(memory, p.dk);
	const int64_t head = blockIdx.x;
	const delta_parts parts = parts_of(scratch, head, p.tokens, p.dk);
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	const float skip = p.is_scan ? to_float(p.skip[head]) : 0.0f;
	float state[R] = {};

	for (int64_t t0 = (p.tokens - 1) / DELTA_BATCH * DELTA_BATCH; t0 >= 0; t0 -= DELTA_BATCH) {
		const int count = p.tokens - t0 < DELTA_BATCH ? (int)(p.tokens - t0) : (int)DELTA_BATCH;

		__syncthreads();
		delta_batch_load(s, p, head, column, t0, count);
		delta_columns_load(s.x, p, dout, out_stride, head, column, t0, count);
		__syncthreads();
		for (int i = count - 1; i >= 0; i--) {
			const int64_t t = t0 + i;
			const float *q = s.q + i * p.dk, *k = s.k + i * p.dk, d = s.x[i * DELTA_TILE + lane];
			const float rest = parts.rest[t * DELTA_TILE + lane], fresh = s.beta[i] * rest;
			float part = 0.0f, dfresh, drest;

#pragma unroll
			for (int r = 0; r < R; r++) {
				const int row = warp + r * DELTA_WARPS;

				if (row < p.dk) {
					state[r] = fmaf(q[row], d, state[r]);
					part = fmaf(k[row], state[r], part);
					columns_add(parts.dk + t * p.dk + row, state[r] * fresh, column == 0);
				}
			}
			s.sum[threadIdx.x] = part;
			__syncthreads();
			dfresh = delta_warps_sum(s.sum);
			drest = s.beta[i] * dfresh;
			if (warp == 0) {
				parts.dv[t * DELTA_TILE + lane] = drest;
				if (column + lane < p.dv)
					dv[t * p.qkv_stride + head * p.dv + column + lane] =
					        from_float<T>(fmaf(skip, d, drest));
				columns_add(parts.dbeta + t, dfresh * rest, column == 0);
				columns_add(parts.from_value + t, drest * s.v[i * DELTA_TILE + lane],
				        column == 0);
				if (p.is_scan)
					columns_add(
					        parts.dskip + t, d * s.v[i * DELTA_TILE + lane], column == 0);
			}
#pragma unroll
			for (int r = 0; r < R; r++) {
				const int row = warp + r * DELTA_WARPS;
				const float keep = s.begins[i] != 0.0f ? 0.0f : s.keep[i];

				if (row < p.dk)
					state[r] = keep *
					           (p.is_scan ? state[r] : fmaf(-k[row], drest, state[r]));
			}
			__syncthreads(); /* sums were read */
		}
	}
}

/* After delta_back: the updates of the state are known, so no sum over rows is needed. */
template <class T, int R>
__global__ void __launch_bounds__(DELTA_THREADS) delta_reads(delta_args<T> p, float *scratch, int64_t column)
{
	SHARED_DYNAMIC(float, memory);
	const delta_batch s = delta_batch_place(memory, p.dk);
	const int64_t head = blockIdx.x;
	const delta_parts parts = parts_of(scratch, head, p.tokens, p.dk);
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	float state[R] = {};

	for (int64_t t0 = 0; t0 < p.tokens; t0 += DELTA_BATCH) {
		const int count = p.tokens - t0 < DELTA_BATCH ? (int)(p.tokens - t0) : (int)DELTA_BATCH;

		__syncthreads();
		delta_batch_load(s, p, head, column, t0, count);
		__syncthreads();
		for (int i = 0; i < count; i++) {
			const int64_t t = t0 + i;
			const float keep = s.begins[i] != 0.0f ? 0.0f : s.keep[i];
			const float fresh = s.beta[i] * parts.rest[t * DELTA_TILE + lane];
			const float drest = parts.dv[t * DELTA_TILE + lane];

#pragma unroll
			for (int r = 0; r < R; r++) {
				const int row = warp + r * DELTA_WARPS;

				if (row < p.dk) {
					state[r] *= keep;
					columns_add(parts.dk + t * p.dk + row, -state[r] * drest, 0);
					state[r] = fmaf(s.k[i * p.dk + row], fresh, state[r]);
				}
			}
		}
	}
}

/* What a head's gates need, [tokens] each. from_value NULL: from_out has dg itself. */
struct gate_parts {
	const float *from_out, *from_value, *dbeta, *dskip;
};

__device__ __forceinline__ gate_parts gate_parts_of(float *scratch, int64_t head, int64_t tokens, int64_t dk)
{
	const delta_parts parts = parts_of(scratch, head, tokens, dk);

	return {parts.from_out, parts.from_value, parts.dbeta, parts.dskip};
}

__device__ __forceinline__ gate_parts gate_parts_of(const chunk_room &room, int64_t head, int64_t, int64_t)
{
	return {chunk_stats(room, head, STAT_DG), NULL, chunk_stats(room, head, STAT_DBETA),
	        chunk_stats(room, head, STAT_DSKIP)};
}

/* One warp a head, 32 tokens at a time from the end: sums over the rest of a document by a scan. */
template <class T, class S>
__global__ void __launch_bounds__(WARP)
        delta_gates(delta_args<T> p, T *da, T *db, float *ddecay, float *ddt_bias, float *dskip, S scratch)
{
	const int64_t head = blockIdx.x;
	const gate_parts parts = gate_parts_of(scratch, head, p.tokens, p.dk);
	const int lane = threadIdx.x;
	double decay_sum = 0, bias_sum = 0, skip_sum = 0;
	float carried = 0.0f; /* of the token after these 32 */
	int64_t carried_start = -1;

	for (int64_t t0 = (p.tokens - 1) / WARP * WARP; t0 >= 0; t0 -= WARP) {
		const int64_t t = t0 + lane;
		const int is_here = t < p.tokens;
		const int start = is_here ? p.doc_start[t] : -2;
		float dg =
		        is_here ? parts.from_out[t] - (parts.from_value ? parts.from_value[t] : 0.0f) : 0.0f;

		for (int away = 1; away < WARP && parts.from_value; away *= 2) {
			const float more = __shfl_down_sync(0xffffffffu, dg, away);
			const int other = __shfl_down_sync(0xffffffffu, start, away);

			if (lane + away < WARP && other == start)
				dg += more;
		}
		if (is_here && start == carried_start && parts.from_value)
			dg += carried;
		carried = __shfl_sync(0xffffffffu, dg, 0);
		carried_start = __shfl_sync(0xffffffffu, start, 0);
		if (is_here) {
			const delta_gate_value gate = delta_gate_at(p, t, head);

			const float dx = fmaf(dg, gate.slope, parts.dbeta[t] * gate.step_slope);

			da[t * p.gate_stride + head] = from_float<T>(dx);
			if (p.is_scan)
				skip_sum += (double)parts.dskip[t];
			else
				db[t * p.gate_stride + head] =
				        from_float<T>(parts.dbeta[t] * gate.sigmoid * (1.0f - gate.sigmoid));
			decay_sum += (double)dg * (double)gate.g;
			bias_sum += (double)dx;
		}
	}
	decay_sum = warp_sum(decay_sum);
	bias_sum = warp_sum(bias_sum);
	skip_sum = warp_sum(skip_sum);
	if (lane == 0) {
		ddecay[head] = (float)((double)ddecay[head] + decay_sum);
		ddt_bias[head] = (float)((double)ddt_bias[head] + bias_sum);
		if (p.is_scan)
			dskip[head] = (float)((double)dskip[head] + skip_sum);
	}
}

__device__ __forceinline__ const float *key_grad_of(
        float *scratch, int64_t head, int64_t t, const int64_t tokens, int64_t dk, int side)
{
	const delta_parts parts = parts_of(scratch, head, tokens, dk);

	return (side ? parts.dk : parts.dq) + t * dk;
}

__device__ __forceinline__ const float *key_grad_of(
        const chunk_room &room, int64_t head, int64_t t, int64_t, int64_t dk, int side)
{
	return chunk_keys(room, head, t) + side * dk;
}

/* One warp a token and key head. */
template <class T, class S>
__global__ void __launch_bounds__(DELTA_THREADS) delta_keys(delta_args<T> p, T *dq, T *dk, S scratch)
{
	const int64_t item = (int64_t)blockIdx.x * DELTA_WARPS + threadIdx.x / WARP;
	const int64_t t = item / p.key_heads, key = item % p.key_heads, each = p.value_heads / p.key_heads;
	const int lane = threadIdx.x % WARP;

	if (t >= p.tokens)
		return;
	for (int side = 0; side < 2; side++) {
		const int64_t at = t * p.qkv_stride + key * p.dk;
		const T *x = (side ? p.k : p.q) + at;
		T *dx = (side ? dk : dq) + at;
		float sums[DELTA_ROWS_MAX * DELTA_WARPS / WARP] = {}, square = 0.0f, along = 0.0f, length;

#pragma unroll
		for (int j = 0; j < DELTA_ROWS_MAX * DELTA_WARPS / WARP; j++) {
			const int64_t d = lane + j * WARP;

			if (d >= p.dk)
				continue;
			for (int64_t head = key * each; head < (key + 1) * each; head++)
				sums[j] += key_grad_of(scratch, head, t, p.tokens, p.dk, side)[d];
			square = fmaf(to_float(x[d]), to_float(x[d]), square);
			along = fmaf(to_float(x[d]), sums[j], along);
		}
		length = p.is_scan ? 1.0f : 1.0f / sqrtf(warp_sum(square) + p.epsilon);
		along = p.is_scan ? 0.0f : warp_sum(along) * length * length;
#pragma unroll
		for (int j = 0; j < DELTA_ROWS_MAX * DELTA_WARPS / WARP; j++) {
			const int64_t d = lane + j * WARP;

			if (d < p.dk)
				dx[d] = from_float<T>((sums[j] - along * to_float(x[d])) * length);
		}
	}
}

template <class T, int R> int sweeps(const struct cuda_launch *at, const struct op_delta_grad *o)
{
	const delta_args<T> p = delta_args_of<T>(o);
	const int64_t shared = delta_shared_bytes(o->key_dim);
	const dim3 heads((unsigned)o->value_heads);
	float *scratch = dev_ptr<float>(o->scratch);
	const T *dout = dev_ptr<const T>(o->dout);
	int rc = 0;

	for (int64_t column = 0; column < o->value_dim && !rc; column += DELTA_TILE) {
		rc = cuda_start(at, "delta_grad", delta_outputs<T, R>, heads, DELTA_THREADS, shared, p, dout,
		        o->out_stride, scratch, column);
		if (!rc)
			rc = cuda_start(at, "delta_grad", delta_back<T, R>, heads, DELTA_THREADS, shared, p,
			        dev_ptr<T>(o->dv), dout, o->out_stride, scratch, column);
		if (!rc && !p.is_scan)
			rc = cuda_start(at, "delta_grad", delta_reads<T, R>, heads, DELTA_THREADS, shared, p,
			        scratch, column);
	}
	return rc;
}

/* From the gradients of the sweeps or chunks, which are in scratch. */
template <class T, class S>
int gates_start(const struct cuda_launch *at, const struct op_delta_grad *o, S scratch)
{
	const delta_args<T> p = delta_args_of<T>(o);
	int rc = cuda_start(at, "delta_grad", delta_gates<T, S>, dim3((unsigned)o->value_heads), WARP, 0, p,
	        dev_ptr<T>(o->da), dev_ptr<T>(o->db), dev_ptr<float>(o->ddecay), dev_ptr<float>(o->ddt_bias),
	        dev_ptr<float>(o->dskip), scratch);

	if (!rc)
		rc = cuda_start(at, "delta_grad", delta_keys<T, S>,
		        dim3((unsigned)ceil_div(o->tokens * o->key_heads, DELTA_WARPS)), DELTA_THREADS, 0, p,
		        dev_ptr<T>(o->dq), dev_ptr<T>(o->dk), scratch);
	return rc;
}

template <class T> int grad_start(const struct cuda_launch *at, const struct op_delta_grad *o)
{
	int rc = 0;

#define START(R) sweeps<T, R>(at, o)
	DELTA_ROWS(o->key_dim, rc, START);
#undef START
	return rc ? rc : gates_start<T>(at, o, dev_ptr<float>(o->scratch));
}

} // namespace

extern "C" int cuda_delta_grad(const struct cuda_launch *at, const struct op_delta_grad *o)
{
	const int width = o->scratch.value % 16 ? 0 : delta_width_of(at, o);
	int rc = delta_refuse(o->key_dim, o->value_heads, o->tokens);

	if (rc)
		return rc;
	if (!width)
		return o->dtype == DTYPE_BF16 ? grad_start<bf16>(at, o) : grad_start<float>(at, o);
	rc = delta_grad_walks(at, o, width);
	if (!rc)
		rc = delta_grad_local(at, o, width);
	return rc ? rc : gates_start<bf16>(at, o, chunk_room_of(o));
}
