/* Attention with heads of 257 to 512 numbers through the tensor cores: forward, dq, and dk with dv.
 *
 * The results of 16 rows and 512 columns are 256 accumulators a thread. So SPLIT warps share 16 rows. Each
 * has D / SPLIT columns: of the results, and of the depth of the scores. The parts of the scores, in fp32, go
 * through shared memory; every warp of the group adds them in the same order, so all have the same scores and
 * do the same softmax. No product is done twice. The barriers that guard the tiles guard the parts too.
 *
 * A tile has few rows, 1 KiB each, so that it fits: the launchers have the sizes for 99 KiB (capability 8.6,
 * 8.9, 12.0), 163 KiB (8.0) and 227 KiB (9.0, 10.0). */
#ifndef FERRY_GPU_ATTENTION_WIDE_CUH
#define FERRY_GPU_ATTENTION_WIDE_CUH

#include "gpu/attention_scores.cuh"

/* A warp's part of the scores [16][8 N], as lanes hold them, at [N][WARP][4] of the group's parts. */
template <int N>
static __device__ __forceinline__ void part_put(float *parts, const float (&s)[1][N][4], int part, int lane)
{
#pragma unroll
	for (int n = 0; n < N; n++)
		*(vec<float, 4> *)(parts + ((part * N + n) * WARP + lane) * 4) = {
		        s[0][n][0], s[0][n][1], s[0][n][2], s[0][n][3]};
}

/* The sum of the group's parts; after a barrier. */
template <int SPLIT, int N>
static __device__ __forceinline__ void parts_sum(float (&s)[1][N][4], const float *parts, int lane)
{
	zero(s);
#pragma unroll
	for (int part = 0; part < SPLIT; part++)
#pragma unroll
		for (int n = 0; n < N; n++) {
			const vec<float, 4> x =
			        *(const vec<float, 4> *)(parts + ((part * N + n) * WARP + lane) * 4);

#pragma unroll
			for (int c = 0; c < 4; c++)
				s[0][n][c] += x.at[c];
		}
}

/* ---- forward ---- */

template <int D, int TK, int WARPS, int SPLIT> struct wide_forward_tiles {
	static constexpr int THREADS = WARPS * WARP, GROUPS = WARPS / SPLIT, TQ = 16 * GROUPS, N = TK / 8;
	static constexpr int PARTS = SPLIT * N * WARP * 4; /* floats of a group */
	static constexpr int SHARED_BYTES =
	        (TQ + 2 * TK) * PITCH<D> * (int)sizeof(bf16) + GROUPS * PARTS * (int)sizeof(float);
};

template <int D, int TK, int WARPS, int SPLIT, int ANY>
static __global__ void __launch_bounds__(WARPS *WARP) attention_wide_kernel(const attention_shape p,
        bf16 *__restrict__ out, float *__restrict__ lse, const bf16 *__restrict__ q,
        const bf16 *__restrict__ k, const bf16 *__restrict__ v, const bf16 *__restrict__ sink)
{
	using tiles = wide_forward_tiles<D, TK, WARPS, SPLIT>;
	constexpr int P = PITCH<D>, TQ = tiles::TQ, THREADS = tiles::THREADS, DW = D / SPLIT;
	SHARED_DYNAMIC(bf16, q_tile);
	bf16 *k_tile = q_tile + TQ * P, *v_tile = k_tile + TK * P;
	int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, part = warp % SPLIT;
	int warp_row = warp / SPLIT * 16, warp_column = part * DW;
	float *parts = (float *)(v_tile + TK * P) + warp / SPLIT * tiles::PARTS;
	int head = (int)blockIdx.x % p.heads, kv_head = head / (p.heads / p.kv_heads);
	int q0 = (int)((gridDim.x - 1 - blockIdx.x) / (unsigned)p.heads) * TQ;
	int q_end = min(q0 + TQ, p.tokens), row0 = q0 + warp_row, row_last = min(row0 + 16, q_end) - 1;
	int k0 = first_key(p, q0) / TK * TK, warp_first = first_key(p, min(row0, q_end - 1));
	int warp_all = first_key(p, max(row_last, q0));
	int k_end = ANY ? key_end(p, q_end - 1) : q_end, warp_end = ANY ? key_end(p, row_last) : row_last + 1,
	    warp_all_end = ANY ? key_end(p, min(row0, row_last)) : row0 + 1;
	float s[1][TK / 8][4], o[1][DW / 8][4], factor[1][2];
	softmax<1> state;
	int64_t kv_at = k0 * p.qkv_stride + kv_head * p.kv_head_stride;

	tile_load<D, TQ, THREADS>(
	        q_tile, q + q0 * p.qkv_stride + head * p.q_head_stride, p.qkv_stride, q_end - q0, p);
	tile_load<D, TK, THREADS>(k_tile, k + kv_at, p.qkv_stride, p.tokens - k0, p);
	cp_async_commit();
	zero(o);
	for (int half = 0; half < 2; half++) {
		state.max[0][half] = ANY && sink ? to_float(sink[head]) / p.scale : -INFINITY;
		state.sum[0][half] = ANY && sink && lane % 4 == 0 ? 1.0f : 0.0f;
	}
	for (; k0 < k_end; k0 += TK) {
		const bool sees = k0 < warp_end && k0 + TK > warp_first;

		cp_async_wait<0>();
		__syncthreads(); /* k is there; v and the parts are free */
		tile_load<D, TK, THREADS>(v_tile, v + kv_at, p.qkv_stride, p.tokens - k0, p);
		cp_async_commit();
		if (sees) {
			zero(s);
			product_rows<DW, P>(s, q_tile + warp_row * P + warp_column + lane_rows<P>(lane),
			        k_tile + warp_column + lane_columns<P>(lane));
			part_put(parts, s, part, lane);
		}
		cp_async_wait<0>();
		__syncthreads(); /* v and the parts are there, and k free */
		kv_at += TK * p.qkv_stride;
		if (k0 + TK < k_end)
			tile_load<D, TK, THREADS>(k_tile, k + kv_at, p.qkv_stride, p.tokens - k0 - TK, p);
		cp_async_commit();
		if (sees) {
			parts_sum<SPLIT>(s, parts, lane);
			any_scores<ANY>(s, p, head, k0 + lane % 4 * 2 - row0 - lane / 4, -1, 1);
			if (k0 + TK > warp_all_end || k0 < warp_all)
				mask_scores<ANY>(s, p, in_place(row0) + lane / 4, k0 + lane % 4 * 2);
			softmax_step(state, s, o, p.scale_log2);
			product_columns<P>(o, s, v_tile + warp_column + lane_rows<P>(lane));
		}
	}
	for (int half = 0; half < 2; half++) {
		int row = row0 + half * 8 + lane / 4;
		float sum = state.sum[0][half];

		sum += __shfl_xor_sync(0xffffffffu, sum, 1);
		sum += __shfl_xor_sync(0xffffffffu, sum, 2);
		factor[0][half] = 1 / sum;
		if (part == 0 && lane % 4 == 0 && row < q_end)
			lse[(int64_t)row * p.heads + head] =
			        (state.max[0][half] * p.scale_log2 + log2f(sum)) * 0.69314718f;
	}
	/* q's tile was read before the last step's second barrier */
	put_rows<P>(q_tile + warp_row * P + warp_column, o, factor, lane);
	__syncthreads();
	tile_store<D>(out + q0 * p.out_stride + (int64_t)head * p.head_dim, q_tile, p.out_stride, q_end - q0,
	        p, (int)threadIdx.x, THREADS);
}

/* ---- dq ---- */

template <int D, int TK, int WARPS, int SPLIT> struct wide_dq_tiles {
	static constexpr int THREADS = WARPS * WARP, GROUPS = WARPS / SPLIT, TQ = 16 * GROUPS, N = TK / 8;
	static constexpr int PARTS = SPLIT * N * WARP * 4; /* floats of a group, of s and of dp */
	static constexpr int SHARED_BYTES =
	        2 * (TQ + TK) * PITCH<D> * (int)sizeof(bf16) + 2 * GROUPS * PARTS * (int)sizeof(float);
};

template <int D, int TK, int WARPS, int SPLIT, int ANY>
static __global__ void __launch_bounds__(WARPS *WARP)
        attention_wide_dq_kernel(const attention_shape p, bf16 *__restrict__ dq, const grad_inputs in)
{
	using tiles = wide_dq_tiles<D, TK, WARPS, SPLIT>;
	constexpr int P = PITCH<D>, TQ = tiles::TQ, THREADS = tiles::THREADS, DW = D / SPLIT;
	SHARED_DYNAMIC(bf16, q_tile);
	bf16 *dout_tile = q_tile + TQ * P, *v_tile = dout_tile + TQ * P, *k_tile = v_tile + TK * P;
	int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, part = warp % SPLIT;
	int warp_row = warp / SPLIT * 16, warp_column = part * DW;
	float *s_parts = (float *)(k_tile + TK * P) + warp / SPLIT * 2 * tiles::PARTS,
	      *dp_parts = s_parts + tiles::PARTS;
	int head = (int)blockIdx.x % p.heads, kv_head = head / (p.heads / p.kv_heads);
	int q0 = (int)((gridDim.x - 1 - blockIdx.x) / (unsigned)p.heads) * TQ;
	int q_end = min(q0 + TQ, p.tokens), row0 = q0 + warp_row, row_last = min(row0 + 16, q_end) - 1;
	int k0 = first_key(p, q0) / TK * TK, warp_first = first_key(p, min(row0, q_end - 1));
	int warp_all = first_key(p, max(row_last, q0));
	int k_end = ANY ? key_end(p, q_end - 1) : q_end, warp_end = ANY ? key_end(p, row_last) : row_last + 1,
	    warp_all_end = ANY ? key_end(p, min(row0, row_last)) : row0 + 1;
	const bf16 *k = in.k + kv_head * p.kv_head_stride, *v = in.v + kv_head * p.kv_head_stride;
	float s[1][TK / 8][4], dp[1][TK / 8][4], sum[1][DW / 8][4], lse_log2[1][2], delta[1][2];

	tile_load<D, TQ, THREADS>(
	        q_tile, in.q + q0 * p.qkv_stride + head * p.q_head_stride, p.qkv_stride, q_end - q0, p);
	tile_load<D, TQ, THREADS>(dout_tile, in.dout + q0 * p.out_stride + (int64_t)head * p.head_dim,
	        p.out_stride, q_end - q0, p);
	tile_load<D, TK, THREADS>(k_tile, k + k0 * p.qkv_stride, p.qkv_stride, p.tokens - k0, p);
	tile_load<D, TK, THREADS>(v_tile, v + k0 * p.qkv_stride, p.qkv_stride, p.tokens - k0, p);
	cp_async_commit();
	zero(sum);
	for (int half = 0; half < 2; half++) {
		int64_t row = min(row0 + half * 8 + lane / 4, p.tokens - 1);

		lse_log2[0][half] = in.lse_log2[(int64_t)head * p.tokens + row];
		delta[0][half] = in.delta[(int64_t)head * p.tokens + row];
	}
	for (; k0 < k_end; k0 += TK) {
		const bool sees = k0 < warp_end && k0 + TK > warp_first;
		int next = k0 + TK, next_count = next < k_end ? p.tokens - next : 0;

		cp_async_wait<0>();
		__syncthreads(); /* k and v are there, and the parts free */
		if (sees) {
			zero(s);
			product_rows<DW, P>(s, q_tile + warp_row * P + warp_column + lane_rows<P>(lane),
			        k_tile + warp_column + lane_columns<P>(lane));
			part_put(s_parts, s, part, lane);
			zero(dp);
			product_rows<DW, P>(dp, dout_tile + warp_row * P + warp_column + lane_rows<P>(lane),
			        v_tile + warp_column + lane_columns<P>(lane));
			part_put(dp_parts, dp, part, lane);
		}
		__syncthreads(); /* the parts are there, and v free */
		if (next_count)
			tile_load<D, TK, THREADS>(
			        v_tile, v + next * p.qkv_stride, p.qkv_stride, next_count, p);
		cp_async_commit();
		if (sees) {
			parts_sum<SPLIT>(s, s_parts, lane);
			parts_sum<SPLIT>(dp, dp_parts, lane);
			any_scores<ANY>(s, p, head, k0 + lane % 4 * 2 - row0 - lane / 4, -1, 1);
			if (next > warp_all_end || k0 < warp_all)
				mask_scores<ANY>(s, p, in_place(row0) + lane / 4, k0 + lane % 4 * 2);
			dq_scores<ANY>(s, dp, lse_log2, delta, p);
			product_columns<P>(sum, s, k_tile + warp_column + lane_rows<P>(lane));
		}
		__syncthreads(); /* k is free */
		if (next_count)
			tile_load<D, TK, THREADS>(
			        k_tile, k + next * p.qkv_stride, p.qkv_stride, next_count, p);
		cp_async_commit();
	}
	lse_log2[0][0] = lse_log2[0][1] = p.scale;
	put_rows<P>(q_tile + warp_row * P + warp_column, sum, lse_log2, lane);
	__syncthreads();
	tile_store<D>(dq + q0 * p.qkv_stride + head * p.q_head_stride, q_tile, p.qkv_stride, q_end - q0, p,
	        (int)threadIdx.x, THREADS);
}

/* ---- dk, dv: a block takes 16 keys of a kv head, which all its warps share, each with D / SPLIT columns.
 * 16 queries at a time pass. p^T and ds^T are in registers as the left side of the products. ---- */

template <int D, int SPLIT> struct wide_dkv_tiles {
	static constexpr int WARPS = SPLIT, THREADS = WARPS * WARP, TK = 16, TQ = 16, N = TQ / 8;
	static constexpr int PARTS = SPLIT * N * WARP * 4;
	static constexpr int SHARED_BYTES =
	        (2 * TK + 2 * TQ) * PITCH<D> * (int)sizeof(bf16) + (2 * PARTS + 2 * TQ) * (int)sizeof(float);
};

template <int D, int SPLIT, int ANY>
static __global__ void __launch_bounds__(SPLIT *WARP, 2) attention_wide_dkv_kernel(
        const attention_shape p, bf16 *__restrict__ dk, bf16 *__restrict__ dv, const grad_inputs in)
{
	using tiles = wide_dkv_tiles<D, SPLIT>;
	constexpr int P = PITCH<D>, TK = tiles::TK, TQ = tiles::TQ, THREADS = tiles::THREADS, DW = D / SPLIT,
	              N = tiles::N;
	SHARED_DYNAMIC(bf16, k_tile);
	bf16 *v_tile = k_tile + TK * P, *dout_tile = v_tile + TK * P, *q_tile = dout_tile + TQ * P;
	float *s_parts = (float *)(q_tile + TQ * P), *dp_parts = s_parts + tiles::PARTS,
	      *stats = dp_parts + tiles::PARTS;
	int lane = (int)threadIdx.x % WARP, part = (int)threadIdx.x / WARP, warp_column = part * DW;
	int kv_head = (int)blockIdx.x % p.kv_heads, group = p.heads / p.kv_heads;
	int k0 = (int)(blockIdx.x / (unsigned)p.kv_heads) * TK, k_count = min(p.tokens - k0, TK);
	int head = kv_head * group, head_end = head + group, i_end = query_end(p, k0 + k_count - 1);
	int i_first = ANY ? first_query(p, k0) : k0, i0 = i_first;
	int all_first = ANY ? first_query(p, k0 + k_count - 1) : k0 + TK - 1, all_end = query_end(p, k0);
	int row = k0 + lane / 4, first[1][2], end[1][2];
	int64_t kv_at = k0 * p.qkv_stride + kv_head * p.kv_head_stride;
	float s[1][N][4], w[1][N][4], dp[1][N][4], k_sum[1][DW / 8][4], v_sum[1][DW / 8][4], factor[1][2];
	const float *lse = stats + lane % 4 * 2;

	tile_load<D, TK, THREADS>(k_tile, in.k + kv_at, p.qkv_stride, k_count, p);
	tile_load<D, TK, THREADS>(v_tile, in.v + kv_at, p.qkv_stride, k_count, p);
	zero(k_sum);
	zero(v_sum);
	for (int n = 0; n < 2; n++) {
		int key = min(row + n * 8, p.tokens - 1);

		first[0][n] = ANY ? first_query(p, key) : row + n * 8;
		end[0][n] = query_end(p, key);
	}
	while (head < head_end) {
		dkv_load_q<D, TQ, THREADS>(q_tile, stats, p, in, head, i0);
		dkv_load_dout<D, TQ, THREADS>(dout_tile, p, in, head, i0);
		cp_async_commit();
		cp_async_wait<0>();
		__syncthreads(); /* q and dout are there, and the parts free */
		zero(s);
		product_rows<DW, P>(s, k_tile + warp_column + lane_rows<P>(lane),
		        q_tile + warp_column + lane_columns<P>(lane));
		part_put(s_parts, s, part, lane);
		zero(dp);
		product_rows<DW, P>(dp, v_tile + warp_column + lane_rows<P>(lane),
		        dout_tile + warp_column + lane_columns<P>(lane));
		part_put(dp_parts, dp, part, lane);
		__syncthreads(); /* the parts are there */
		parts_sum<SPLIT>(s, s_parts, lane);
		parts_sum<SPLIT>(dp, dp_parts, lane);
		any_scores<ANY>(s, p, head, row - i0 - lane % 4 * 2, 1, -1);
		if (i0 < all_first || i0 + TQ > all_end)
			dkv_mask(s, in_place(i0) + lane % 4 * 2, first, end);
		dkv_probabilities(w, s, lse, p);
		dkv_scores<ANY>(s, w, dp, lse + TQ, p);
		product_columns<P>(v_sum, w, dout_tile + warp_column + lane_rows<P>(lane));
		product_columns<P>(k_sum, s, q_tile + warp_column + lane_rows<P>(lane));
		__syncthreads(); /* q and dout are free */
		i0 += TQ;
		if (i0 >= i_end) {
			i0 = i_first;
			head++;
		}
	}
	factor[0][0] = factor[0][1] = p.scale;
	put_rows<P>(k_tile + warp_column, k_sum, factor, lane);
	put_rows<P>(v_tile + warp_column, v_sum, lane);
	__syncthreads();
	tile_store<D>(dk + kv_at, k_tile, p.qkv_stride, k_count, p, (int)threadIdx.x, THREADS);
	tile_store<D>(dv + kv_at, v_tile, p.qkv_stride, k_count, p, (int)threadIdx.x, THREADS);
}

#endif
