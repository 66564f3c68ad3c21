/* The gated delta rule by chunks: the walk forward, for the results or the states, and the walk back. */
#include "gpu/delta_walk.cuh"

namespace
{

/* R^T, then V'^T in its place: substitution by blocks of 16 tokens. */
__device__ __forceinline__ void solve(float (&x)[CHUNK / 8][4], const walk_shared &s, int lane)
{
	const int from = lane_across(CHUNK_PITCH, lane);

#pragma unroll
	for (int i = 0; i < CHUNK / 16; i++) {
		float result[2][4] = {};

#pragma unroll
		for (int j = 0; j <= i; j++) {
			const int at = i * 16 * CHUNK_PITCH + j * 16 + from;
			const operand known = operand_of(x[2 * j], x[2 * j + 1]);
			uint32_t high[4], low[4];

			ldmatrix_x4(high, s.a_high + at);
			ldmatrix_x4(low, s.a_low + at);
			mma_halves(j < i ? &x[2 * i] : result, known, high, low);
		}
#pragma unroll
		for (int n = 0; n < 2; n++)
#pragma unroll
			for (int c = 0; c < 4; c++)
				x[2 * i + n][c] = result[n][c];
	}
}

/* dV'^T, then r^T in its place. */
__device__ __forceinline__ void solve_transposed(float (&x)[CHUNK / 8][4], const walk_shared &s, int lane)
{
	const int from = lane_down(CHUNK_PITCH, lane);

#pragma unroll
	for (int i = CHUNK / 16 - 1; i >= 0; i--) {
		float result[2][4] = {};

#pragma unroll
		for (int j = CHUNK / 16 - 1; j >= i; j--) {
			const int at = j * 16 * CHUNK_PITCH + i * 16 + from;
			const operand known = operand_of(x[2 * j], x[2 * j + 1]);
			uint32_t high[4], low[4];

			ldmatrix_x4_trans(high, s.a_high + at);
			ldmatrix_x4_trans(low, s.a_low + at);
			mma_halves(j > i ? &x[2 * i] : result, known, high, low);
		}
#pragma unroll
		for (int n = 0; n < 2; n++)
#pragma unroll
			for (int c = 0; c < 4; c++)
				x[2 * i + n][c] = result[n][c];
	}
}

/* x times a factor for each token */
__device__ __forceinline__ void scale_tokens(float (&x)[CHUNK / 8][4], const float *factor, int lane)
{
#pragma unroll
	for (int n = 0; n < CHUNK / 8; n++) {
		const vec<float, 2> f = *(const vec<float, 2> *)(factor + n * 8 + lane % 4 * 2);

#pragma unroll
		for (int c = 0; c < 4; c++)
			x[n][c] *= f.at[c % 2];
	}
}

template <int N> __device__ __forceinline__ void scale_all(float (&x)[N][4], float factor)
{
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int c = 0; c < 4; c++)
			x[n][c] *= factor;
}

/* x = f(x, value) of all elements of x^T and the value tile: v or dO */
template <class F>
__device__ __forceinline__ void values_each(
        float (&x)[CHUNK / 8][4], const walk_shared &s, int warp, int lane, F f)
{
#pragma unroll
	for (int block = 0; block < CHUNK / 16; block++) {
		float left[4], right[4];
		uint32_t values[4];

		walk_values(values, s, block, warp, lane);
		operand_widen(left, right, values);
#pragma unroll
		for (int c = 0; c < 4; c++) {
			x[2 * block][c] = f(x[2 * block][c], left[c]);
			x[2 * block + 1][c] = f(x[2 * block + 1][c], right[c]);
		}
	}
}

__device__ __forceinline__ void add_values(
        float (&x)[CHUNK / 8][4], const walk_shared &s, float skip, int warp, int lane)
{
	if (skip != 0.0f)
		values_each(
		        x, s, warp, lane, [skip](float to, float value) { return fmaf(skip, value, to); });
}

/* V'^T from K S in x: beta (v - e k S), solved. */
__device__ __forceinline__ void fresh_of(
        float (&x)[CHUNK / 8][4], const walk_shared &s, bool is_scan, int warp, int lane)
{
	scale_tokens(x, s.factors.read, lane);
	values_each(x, s, warp, lane, [](float known, float v) { return v - known; });
	scale_tokens(x, s.factors.beta, lane);
	if (!is_scan)
		solve(x, s, lane);
}

/* out^T = e q S + V' P^T + skip v, with q S in out. */
__device__ __forceinline__ void result_of(float (&out)[CHUNK / 8][4], const float (&fresh)[CHUNK / 8][4],
        const walk_shared &s, float skip, int warp, int lane)
{
	const int from = lane_across(CHUNK_PITCH, lane);

	scale_tokens(out, s.factors.out, lane);
#pragma unroll
	for (int j = 0; j < CHUNK / 16; j++) {
		const operand known = operand_of(fresh[2 * j], fresh[2 * j + 1]);

#pragma unroll
		for (int i = j; i < CHUNK / 16; i++) {
			const int at = i * 16 * CHUNK_PITCH + j * 16 + from;
			uint32_t high[4], low[4];

			ldmatrix_x4(high, s.p_high + at);
			ldmatrix_x4(low, s.p_low + at);
			mma_halves(&out[2 * i], known, high, low);
		}
	}
	add_values(out, s, skip, warp, lane);
}

/* KEEP: states and V' go to scratch, for backward, and there is no result. */
template <int D, bool KEEP>
__global__ void __launch_bounds__(CHUNK_THREADS) delta_forward_kernel(
        const delta_args<bf16> p, const walk_inputs in, bf16 *out, int64_t out_stride, chunk_room room)
{
	SHARED_DYNAMIC(bf16, memory);
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	const int64_t column = (int64_t)blockIdx.x * DELTA_COLUMNS, head = blockIdx.y,
	              warp_column = column + warp * 16;
	const float skip = p.is_scan ? to_float(p.skip[head]) : 0.0f;
	walk_shared s = walk_shared_at<D>(memory, in.stages, p.is_scan, !KEEP);
	chunk_walk w = chunk_walk_of(p, blockIdx.z, false), ahead = w;
	float state[D / 8][4];

	walk_start<D>(s, p, in, w, head, column, !KEEP);
	for (; !w.is_done(); w = ahead) {
		float fresh[CHUNK / 8][4] = {}, result[CHUNK / 8][4] = {};

		ahead.next(false);
		walk_wait<D>(s, p, in, ahead, head, column, !KEEP);
		walk_prepare<D>(s, p, w, head, !KEEP);
		if (w.is_first()) {
			clear(state);
		} else {
			if (KEEP)
				walk_keep_state<D>(chunk_state(room, head, w.start, w.first), state,
				        warp_column, p.dv, p.dk, lane);
			if (!p.is_scan)
				walk_read<D>(fresh, state, s.k, lane);
			if (!KEEP)
				walk_read<D>(result, state, s.q, lane);
		}
		fresh_of(fresh, s, p.is_scan, warp, lane);
		if (KEEP)
			walk_keep(chunk_held(room, head, w.first), fresh, w.count(), warp_column, p.dv, lane);
		else
			result_of(result, fresh, s, skip, warp, lane);
		scale_all(state, *s.factors.total);
#pragma unroll
		for (int j = 0; j < CHUNK / 16; j++)
			walk_write<D>(state,
			        operand_of(fresh[2 * j], fresh[2 * j + 1], s.factors.write + j * 16, lane),
			        s.k + j * 16 * KEY_PITCH<D>, lane);
		if (!KEEP)
			walk_store(out + w.first * out_stride + head * p.dv + column, out_stride, result, s,
			        w.count(), p.dv - column, in.aligned, warp, lane);
		walk_turn<D>(s, p, in, ahead, head, column, !KEEP);
	}
}

/* dV'^T = rest (K dS)^T + dO^T P, from K dS in x. */
__device__ __forceinline__ void fresh_grad_of(
        float (&x)[CHUNK / 8][4], const walk_shared &s, int warp, int lane)
{
	const int from = lane_down(CHUNK_PITCH, lane);

	scale_tokens(x, s.factors.write, lane);
#pragma unroll
	for (int i = 0; i < CHUNK / 16; i++) {
		uint32_t dout[4];

		walk_values(dout, s, i, warp, lane);
#pragma unroll
		for (int j = 0; j <= i; j++) {
			const int at = i * 16 * CHUNK_PITCH + j * 16 + from;
			uint32_t high[4], low[4];

			ldmatrix_x4_trans(high, s.p_high + at);
			ldmatrix_x4_trans(low, s.p_low + at);
			mma_halves(&x[2 * j], dout, high, low);
		}
	}
}

/* dS before the chunk: total dS + (e q)^T dO - (beta e k)^T r, r for rules with A. */
template <int D>
__device__ __forceinline__ void state_grad(float (&state)[D / 8][4], const float (&r)[CHUNK / 8][4],
        const walk_shared &s, bool is_scan, int warp, int lane)
{
	constexpr int P = KEY_PITCH<D>;

	scale_all(state, *s.factors.total);
#pragma unroll
	for (int j = 0; j < CHUNK / 16; j++) {
		float left[4], right[4];
		uint32_t dout[4];

		walk_values(dout, s, j, warp, lane);
		operand_widen(left, right, dout);
		walk_write<D>(
		        state, operand_of(left, right, s.factors.out + j * 16, lane), s.q + j * 16 * P, lane);
		if (is_scan)
			continue;
#pragma unroll
		for (int c = 0; c < 4; c++) {
			const int at = j * 16 + lane % 4 * 2 + c % 2;

			left[c] = -r[2 * j][c] * s.factors.beta[at];
			right[c] = -r[2 * j + 1][c] * s.factors.beta[at + 8];
		}
		walk_write<D>(state, operand_of(left, right, s.factors.read + j * 16, lane), s.k + j * 16 * P,
		        lane);
	}
}

/* dv^T = beta r + skip dO, in the place of r */
__device__ __forceinline__ void value_grad(
        float (&r)[CHUNK / 8][4], const walk_shared &s, float skip, int warp, int lane)
{
	scale_tokens(r, s.factors.beta, lane);
	add_values(r, s, skip, warp, lane);
}

/* dv, and for delta_local_kernel r and the dS after each chunk. */
template <int D>
__global__ void __launch_bounds__(CHUNK_THREADS)
        delta_backward_kernel(const delta_args<bf16> p, const walk_inputs in, bf16 *dv, chunk_room room)
{
	SHARED_DYNAMIC(bf16, memory);
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	const int64_t column = (int64_t)blockIdx.x * DELTA_COLUMNS, head = blockIdx.y,
	              warp_column = column + warp * 16;
	const float skip = p.is_scan ? to_float(p.skip[head]) : 0.0f;
	walk_shared s = walk_shared_at<D>(memory, in.stages, p.is_scan, true);
	chunk_walk w = chunk_walk_of(p, blockIdx.z, true), ahead = w;
	float state[D / 8][4];

	walk_start<D>(s, p, in, w, head, column, true);
	for (; !w.is_done(); w = ahead) {
		bf16 *rows = chunk_held(room, head, w.first);
		float r[CHUNK / 8][4] = {};

		ahead.next(true);
		walk_wait<D>(s, p, in, ahead, head, column, true);
		walk_prepare<D>(s, p, w, head, true);
		if (w.is_last()) {
			clear(state);
		} else {
			walk_keep_state<D>(rows + 4 * CHUNK * p.dv, state, warp_column, p.dv, p.dk, lane);
			walk_read<D>(r, state, s.k, lane);
		}
		fresh_grad_of(r, s, warp, lane);
		if (!p.is_scan)
			solve_transposed(r, s, lane);
		walk_keep(rows + 2 * w.count() * p.dv, r, w.count(), warp_column, p.dv, lane);
		state_grad<D>(state, r, s, p.is_scan, warp, lane);
		value_grad(r, s, skip, warp, lane);
		walk_store(dv + w.first * p.qkv_stride + head * p.dv + column, p.qkv_stride, r, s, w.count(),
		        p.dv - column, in.aligned, warp, lane);
		walk_turn<D>(s, p, in, ahead, head, column, true);
	}
}

/* 2 if a block may have two stages of tiles, 1 if one, 0 if none. */
int stages_of(const struct cuda_launch *at, int d, bool is_scan, bool has_q)
{
	const int stage = walk_stage_bytes(d, has_q), rest = walk_rest_bytes(is_scan, has_q);

	return 2 * stage + rest <= at->shared_bytes_max ? 2 : stage + rest <= at->shared_bytes_max;
}

dim3 walk_grid(int64_t tokens, int64_t value_heads, int64_t value_dim)
{
	return dim3((unsigned)ceil_div(value_dim, DELTA_COLUMNS), (unsigned)value_heads,
	        (unsigned)ceil_div(tokens, DELTA_PART));
}

template <int D> int forward_start(const struct cuda_launch *at, const struct op_delta *o, int aligned)
{
	const bool is_scan = o->rule == DELTA_SCAN;
	const int stages = stages_of(at, D, is_scan, true);
	const walk_inputs in = {dev_ptr<const bf16>(o->v), o->qkv_stride, stages, aligned};

	return cuda_start(at, "delta", delta_forward_kernel<D, false>,
	        walk_grid(o->tokens, o->value_heads, o->value_dim), CHUNK_THREADS,
	        stages * walk_stage_bytes(D, true) + walk_rest_bytes(is_scan, true), delta_args_of<bf16>(o),
	        in, dev_ptr<bf16>(o->out), o->out_stride, chunk_room{});
}

template <int D> int backward_start(const struct cuda_launch *at, const struct op_delta_grad *o, int aligned)
{
	const bool is_scan = o->rule == DELTA_SCAN;
	const dim3 grid = walk_grid(o->tokens, o->value_heads, o->value_dim);
	const int keep_stages = stages_of(at, D, is_scan, false), stages = stages_of(at, D, is_scan, true);
	const walk_inputs of_v = {dev_ptr<const bf16>(o->v), o->qkv_stride, keep_stages, aligned};
	const walk_inputs of_dout = {dev_ptr<const bf16>(o->dout), o->out_stride, stages, aligned};
	const delta_args<bf16> p = delta_args_of<bf16>(o);
	const chunk_room room = chunk_room_of(o);
	int rc = cuda_start(at, "delta_grad", delta_forward_kernel<D, true>, grid, CHUNK_THREADS,
	        keep_stages * walk_stage_bytes(D, false) + walk_rest_bytes(is_scan, false), p, of_v,
	        (bf16 *)NULL, (int64_t)0, room);

	if (!rc)
		rc = cuda_start(at, "delta_grad", delta_backward_kernel<D>, grid, CHUNK_THREADS,
		        stages * walk_stage_bytes(D, true) + walk_rest_bytes(is_scan, true), p, of_dout,
		        dev_ptr<bf16>(o->dv), room);
	return rc;
}

/* Every row of these begins at a multiple of 16 bytes. */
template <class O> bool rows_aligned(const O *o, dev_addr result)
{
	return o->qkv_stride % 8 == 0 && o->out_stride % 8 == 0 && o->q.value % 16 == 0 &&
	       o->k.value % 16 == 0 && o->v.value % 16 == 0 && result.value % 16 == 0;
}

} // namespace

int delta_width_of(const struct cuda_launch *at, const delta_widths &w)
{
	const int d = w.key_dim <= 64 ? 64 : w.key_dim <= 128 ? 128 : 256;

	if (w.dtype != DTYPE_BF16 || w.key_dim > 256 || w.key_dim % 8 || w.value_dim % 8 ||
	        w.value_heads > 65535 || w.value_dim > 1 << 20)
		return 0;
	return stages_of(at, d, w.is_scan, true) ? d : 0;
}

int delta_by_chunk(const struct cuda_launch *at, const struct op_delta *o, int d)
{
	const int aligned = rows_aligned(o, o->out);

	if (d == 64)
		return forward_start<64>(at, o, aligned);
	return d == 128 ? forward_start<128>(at, o, aligned) : forward_start<256>(at, o, aligned);
}

int delta_grad_walks(const struct cuda_launch *at, const struct op_delta_grad *o, int d)
{
	const int aligned = rows_aligned(o, o->dv) && o->dout.value % 16 == 0;

	if (d == 64)
		return backward_start<64>(at, o, aligned);
	return d == 128 ? backward_start<128>(at, o, aligned) : backward_start<256>(at, o, aligned);
}
