/* Attention backward through the tensor cores, in two passes. */
#include "gpu/attention_wide.cuh"

OP_ATTENTION_LIST(CUDA_DECLARE)

/* Both passes recompute the probabilities from lse: one over blocks of queries for dq, one over blocks of
 * keys for dk and dv. One pass would save two of seven products. But then several blocks would add to dq in
 * an order of their own, or each would wait for the one before it. With delta = sum(dout * out), from a small
 * kernel before the two:
 *
 *     p = exp(scale q.k - lse), dv = p^T dout, ds = p (dout v^T - delta), dq = scale ds k, dk = scale ds^T q
 *
 * p and ds are rounded to bf16 for their products, as in forward.
 *
 * Tiles follow the rule of cuda_attention.cu: 32 rows a warp, so that four products use a piece from shared
 * memory. For dq 128 queries with their dout stay. k and v pass 32 at a time at D = 128, where the 128
 * accumulators leave room for 2 x 32 scores. For dk and dv 64 keys stay; q and dout of all heads of the group
 * pass 64 at a time. Scores are computed transposed. dk and dv of 32 keys and 128 columns would be 256
 * accumulators a thread. So two warps share them, 64 columns each, and share the scores too, 32 queries each.
 * p^T and ds^T pass between them through shared memory. Then 112 loads of 16x16 elements feed 256 products a
 * warp; 16 keys a warp, with p in registers, would need 144.
 *
 * The last product of a step reads k (or q), which has two buffers: the next one arrives during the whole
 * step. v (or dout) has one buffer, which is free before that last product and is filled during it. Two
 * blocks fit a multiprocessor of an H100. */

/* ---- delta: a warp per token and head, tokens running fastest ---- */

enum { DELTA_THREADS = 256 };

/* Computes delta and, unless NULL, lse_log2 = lse / ln 2. */
template <class T>
static __global__ void __launch_bounds__(DELTA_THREADS) attention_delta_kernel(const attention_shape p,
        float *__restrict__ delta, float *__restrict__ lse_log2, const T *__restrict__ dout,
        const T *__restrict__ out, const float *__restrict__ lse)
{
	int64_t row = (int64_t)blockIdx.x * (DELTA_THREADS / WARP) + threadIdx.x / WARP;
	int lane = (int)threadIdx.x % WARP, t = (int)(row % p.tokens), head = (int)(row / p.tokens);
	int64_t at = t * p.out_stride + (int64_t)head * p.head_dim;
	float sum = 0;

	if (head >= p.heads)
		return;
	if (p.aligned && p.head_dim % vec_count<T> == 0) {
		for (int d = lane * vec_count<T>; d < p.head_dim; d += WARP * vec_count<T>) {
			const vec<T, vec_count<T>> x = *(const vec<T, vec_count<T>> *)(dout + at + d);
			const vec<T, vec_count<T>> y = *(const vec<T, vec_count<T>> *)(out + at + d);

#pragma unroll
			for (int i = 0; i < vec_count<T>; i++)
				sum = fmaf(to_float(x.at[i]), to_float(y.at[i]), sum);
		}
	} else {
		for (int d = lane; d < p.head_dim; d += WARP)
			sum = fmaf(to_float(dout[at + d]), to_float(out[at + d]), sum);
	}
	sum = warp_sum(sum);
	if (lane)
		return;
	delta[row] = sum;
	if (lse_log2)
		lse_log2[row] = lse[(int64_t)t * p.heads + head] * 1.44269504f;
}

/* ---- dq: a block takes TQ queries of a head, keys pass ---- */

template <int D, int M, int TK, int K_BUFFERS> struct dq_tiles {
	static constexpr int WARPS = 4, THREADS = WARPS * WARP, ROWS = 16 * M, TQ = WARPS * ROWS;
	static constexpr int SHARED_BYTES = (2 * TQ + (K_BUFFERS + 1) * TK) * PITCH<D> * (int)sizeof(bf16);
};

template <int D, int M, int TK, int K_BUFFERS, int ANY>
static __global__ void __launch_bounds__(dq_tiles<D, M, TK, K_BUFFERS>::THREADS, 2)
        attention_dq_kernel(const attention_shape p, bf16 *__restrict__ dq, const grad_inputs in)
{
	using tiles = dq_tiles<D, M, TK, K_BUFFERS>;
	constexpr int P = PITCH<D>, TQ = tiles::TQ, THREADS = tiles::THREADS;
	SHARED_DYNAMIC(bf16, q_tile);
	bf16 *dout_tile = q_tile + TQ * P, *v_tile = dout_tile + TQ * P, *k_tiles = v_tile + TK * P;
	int lane = (int)threadIdx.x % WARP, warp_row = (int)threadIdx.x / WARP * tiles::ROWS;
	int head = (int)blockIdx.x % p.heads, kv_head = head / (p.heads / p.kv_heads);
	int q0 = (int)((gridDim.x - 1 - blockIdx.x) / (unsigned)p.heads) * TQ;
	int q_end = min(q0 + TQ, p.tokens), row0 = q0 + warp_row,
	    row_last = min(row0 + tiles::ROWS, q_end) - 1;
	int k0 = first_key(p, q0) / TK * TK, warp_first = first_key(p, min(row0, q_end - 1));
	int warp_all = first_key(p, max(row_last, q0)); /* all rows of the warp see the keys from here on */
	/* one past the last key that the block sees, a row of the warp, all rows of the warp */
	int k_end = ANY ? key_end(p, q_end - 1) : q_end, warp_end = ANY ? key_end(p, row_last) : row_last + 1,
	    warp_all_end = ANY ? key_end(p, min(row0, row_last)) : row0 + 1;
	const bf16 *k = in.k + kv_head * p.kv_head_stride, *v = in.v + kv_head * p.kv_head_stride;
	float s[M][TK / 8][4], dp[M][TK / 8][4], sum[M][D / 8][4], lse_log2[M][2], delta[M][2];

	tile_load<D, TQ, THREADS>(
	        q_tile, in.q + q0 * p.qkv_stride + head * p.q_head_stride, p.qkv_stride, q_end - q0, p);
	tile_load<D, TQ, THREADS>(dout_tile, in.dout + q0 * p.out_stride + (int64_t)head * p.head_dim,
	        p.out_stride, q_end - q0, p);
	tile_load<D, TK, THREADS>(k_tiles, k + k0 * p.qkv_stride, p.qkv_stride, p.tokens - k0, p);
	tile_load<D, TK, THREADS>(v_tile, v + k0 * p.qkv_stride, p.qkv_stride, p.tokens - k0, p);
	cp_async_commit();
	zero(sum);
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int64_t row = min(row0 + m * 16 + half * 8 + lane / 4, p.tokens - 1);

			lse_log2[m][half] = in.lse_log2[(int64_t)head * p.tokens + row];
			delta[m][half] = in.delta[(int64_t)head * p.tokens + row];
		}

	for (int step = 0; k0 < k_end; k0 += TK, step++) {
		const bool sees = k0 < warp_end && k0 + TK > warp_first;
		bf16 *k_tile = k_tiles + step % K_BUFFERS * TK * P;
		bf16 *k_next = k_tiles + (step + 1) % K_BUFFERS * TK * P;
		int next = k0 + TK, next_count = next < k_end ? p.tokens - next : 0;

		cp_async_wait<0>();
		__syncthreads(); /* k and v are there, and k's other buffer is free */
		if (K_BUFFERS == 2 && next_count)
			tile_load<D, TK, THREADS>(
			        k_next, k + next * p.qkv_stride, p.qkv_stride, next_count, p);
		cp_async_commit();
		if (sees) {
			zero(s);
			product_rows<D, P>(s, q_tile + warp_row * P + lane_rows<P>(lane),
			        k_tile + lane_columns<P>(lane));
			zero(dp);
			product_rows<D, P>(dp, dout_tile + warp_row * P + lane_rows<P>(lane),
			        v_tile + lane_columns<P>(lane));
		}
		__syncthreads(); /* v is free */
		if (next_count)
			tile_load<D, TK, THREADS>(
			        v_tile, v + next * p.qkv_stride, p.qkv_stride, next_count, p);
		cp_async_commit();
		if (sees) {
			any_scores<ANY>(s, p, head, k0 + lane % 4 * 2 - row0 - lane / 4, -1, 1);
			if (next > warp_all_end || k0 < warp_all)
				mask_scores<ANY>(s, p, in_place(row0) + lane / 4, k0 + lane % 4 * 2);
			dq_scores<ANY>(s, dp, lse_log2, delta, p);
			product_columns<P>(sum, s, k_tile + lane_rows<P>(lane));
		}
		if (K_BUFFERS == 1) {
			__syncthreads(); /* k is free */
			if (next_count)
				tile_load<D, TK, THREADS>(
				        k_next, k + next * p.qkv_stride, p.qkv_stride, next_count, p);
			cp_async_commit();
		}
	}

#pragma unroll
	for (int m = 0; m < M; m++)
		lse_log2[m][0] = lse_log2[m][1] = p.scale;
	/* each warp stores through its own rows of q's tile, which no other warp reads */
	put_rows<P>(q_tile + warp_row * P, sum, lse_log2, lane);
	__syncwarp();
	tile_store<D>(dq + row0 * p.qkv_stride + head * p.q_head_stride, q_tile + warp_row * P, p.qkv_stride,
	        row_last + 1 - row0, p, lane, WARP);
}

/* ---- dk, dv: a block takes 32 M keys of a kv head. The queries of the heads that share it pass, head after
 * head. Warps are 2 x 2, with 16 M keys each: of the scores half of the queries, of the results half of the
 * columns ---- */

template <int D, int M, int TQ, int Q_BUFFERS> struct dkv_tiles {
	static constexpr int WARPS = 4, THREADS = WARPS * WARP, ROWS = 16 * M, TK = 2 * ROWS;
	static constexpr int P_PITCH = TQ + 8; /* of p and ds, TK rows each */
	static constexpr int STATS_BYTES = Q_BUFFERS * 2 * TQ * (int)sizeof(float);
	static constexpr int SHARED_BYTES =
	        ((2 * TK + (Q_BUFFERS + 1) * TQ) * PITCH<D> + 2 * TK * P_PITCH) * (int)sizeof(bf16) +
	        STATS_BYTES;
};

template <int D, int M, int TQ, int Q_BUFFERS, int ANY>
static __global__ void __launch_bounds__(dkv_tiles<D, M, TQ, Q_BUFFERS>::THREADS, 2) attention_dkv_kernel(
        const attention_shape p, bf16 *__restrict__ dk, bf16 *__restrict__ dv, const grad_inputs in)
{
	using tiles = dkv_tiles<D, M, TQ, Q_BUFFERS>;
	constexpr int P = PITCH<D>, PP = tiles::P_PITCH, TK = tiles::TK, THREADS = tiles::THREADS,
	              N = TQ / 16;
	SHARED_DYNAMIC(bf16, k_tile);
	bf16 *v_tile = k_tile + TK * P, *dout_tile = v_tile + TK * P, *q_tiles = dout_tile + TQ * P;
	bf16 *p_tile = q_tiles + Q_BUFFERS * TQ * P, *ds_tile = p_tile + TK * PP;
	float *stats = (float *)(ds_tile + TK * PP);
	int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, group = p.heads / p.kv_heads;
	int warp_row = warp / 2 * tiles::ROWS, warp_query = warp % 2 * (TQ / 2),
	    warp_column = warp % 2 * (D / 2);
	int kv_head = (int)blockIdx.x % p.kv_heads;
	int k0 = (int)(blockIdx.x / (unsigned)p.kv_heads) * TK, k_count = min(p.tokens - k0, TK);
	int head = kv_head * group, head_end = head + group, i_end = query_end(p, k0 + k_count - 1);
	int i_first = ANY ? first_query(p, k0) : k0, i0 = i_first;
	/* queries in between see all keys of the block */
	int all_first = ANY ? first_query(p, k0 + k_count - 1) : k0 + TK - 1, all_end = query_end(p, k0);
	int row = k0 + warp_row + lane / 4, first[M][2], end[M][2];
	int64_t kv_at = k0 * p.qkv_stride + kv_head * p.kv_head_stride;
	float s[M][N][4], w[M][N][4], dp[M][N][4], k_sum[M][D / 16][4], v_sum[M][D / 16][4], factor[M][2];

	tile_load<D, TK, THREADS>(k_tile, in.k + kv_at, p.qkv_stride, k_count, p);
	tile_load<D, TK, THREADS>(v_tile, in.v + kv_at, p.qkv_stride, k_count, p);
	dkv_load_q<D, TQ, THREADS>(q_tiles, stats, p, in, head, i0);
	dkv_load_dout<D, TQ, THREADS>(dout_tile, p, in, head, i0);
	cp_async_commit();
	zero(k_sum);
	zero(v_sum);
	for (int n = 0; n < 2 * M; n++) {
		int key = min(row + n * 8, p.tokens - 1);

		first[n / 2][n % 2] = ANY ? first_query(p, key) : row + n * 8;
		end[n / 2][n % 2] = query_end(p, key);
	}

	for (int step = 0; head < head_end; step++) {
		bf16 *q_tile = q_tiles + step % Q_BUFFERS * TQ * P;
		bf16 *q_next = q_tiles + (step + 1) % Q_BUFFERS * TQ * P;
		const float *lse = stats + step % Q_BUFFERS * 2 * TQ + warp_query + lane % 4 * 2;
		float *stats_next = stats + (step + 1) % Q_BUFFERS * 2 * TQ;
		int next = i0 + TQ < i_end ? i0 + TQ : i_first, next_head = next == i_first ? head + 1 : head;

		cp_async_wait<0>();
		__syncthreads(); /* q and dout are there; q's other buffer, p and ds are free */
		if (Q_BUFFERS == 2 && next_head < head_end)
			dkv_load_q<D, TQ, THREADS>(q_next, stats_next, p, in, next_head, next);
		cp_async_commit();
		zero(s);
		product_rows<D, P>(s, k_tile + warp_row * P + lane_rows<P>(lane),
		        q_tile + warp_query * P + lane_columns<P>(lane));
		any_scores<ANY>(s, p, head, row - i0 - warp_query - lane % 4 * 2, 1, -1);
		if (i0 < all_first || i0 + TQ > all_end)
			dkv_mask(s, in_place(i0) + warp_query + lane % 4 * 2, first, end);
		dkv_probabilities(w, s, lse, p);
		put_rows<PP>(p_tile + warp_row * PP + warp_query, w, lane);
		zero(dp);
		product_rows<D, P>(dp, v_tile + warp_row * P + lane_rows<P>(lane),
		        dout_tile + warp_query * P + lane_columns<P>(lane));
		if (ANY) /* again from s, which the slope of the cap needs: both would be too many registers */
			dkv_probabilities(w, s, in_place(lse), p);
		dkv_scores<ANY>(s, w, dp, lse + TQ, p);
		put_rows<PP>(ds_tile + warp_row * PP + warp_query, s, lane);
		__syncthreads(); /* p and ds are there */
		product_tiles<PP, P, TQ>(v_sum, p_tile + warp_row * PP + lane_rows<PP>(lane),
		        dout_tile + warp_column + lane_rows<P>(lane));
		__syncthreads(); /* dout is free */
		if (next_head < head_end)
			dkv_load_dout<D, TQ, THREADS>(dout_tile, p, in, next_head, next);
		cp_async_commit();
		product_tiles<PP, P, TQ>(k_sum, ds_tile + warp_row * PP + lane_rows<PP>(lane),
		        q_tile + warp_column + lane_rows<P>(lane));
		if (Q_BUFFERS == 1) {
			__syncthreads(); /* q is free */
			if (next_head < head_end)
				dkv_load_q<D, TQ, THREADS>(q_next, stats_next, p, in, next_head, next);
			cp_async_commit();
		}
		i0 = next;
		head = next_head;
	}

	/* stores go through the tiles of k and v, which no warp reads after the last step's barriers */
	for (int m = 0; m < M; m++)
		factor[m][0] = factor[m][1] = p.scale;
	put_rows<P>(k_tile + warp_row * P + warp_column, k_sum, factor, lane);
	put_rows<P>(v_tile + warp_row * P + warp_column, v_sum, lane);
	__syncthreads();
	tile_store<D>(dk + kv_at, k_tile, p.qkv_stride, k_count, p, (int)threadIdx.x, THREADS);
	tile_store<D>(dv + kv_at, v_tile, p.qkv_stride, k_count, p, (int)threadIdx.x, THREADS);
}

/* ---- launchers ---- */

struct op_attention attention_forward_of(const struct op_attention_grad *g)
{
	struct op_attention o = {};

	o.out = g->out;
	o.lse = g->lse;
	o.q = g->q;
	o.k = g->k;
	o.v = g->v;
	o.doc_start = g->doc_start;
	o.doc_end = g->doc_end;
	o.tokens = g->tokens;
	o.heads = g->heads;
	o.kv_heads = g->kv_heads;
	o.head_dim = g->head_dim;
	o.window = g->window;
	o.qkv_stride = g->qkv_stride;
	o.q_head_stride = g->q_head_stride;
	o.kv_head_stride = g->kv_head_stride;
	o.out_stride = g->out_stride;
	o.sink = g->sink;
	o.bias = g->bias;
	o.scale = g->scale;
	o.score_cap = g->score_cap;
	o.mask = g->mask;
	o.dtype = g->dtype;
	return o;
}

template <class T>
static int delta_start(const struct cuda_launch *at, const struct op_attention_grad *o,
        const attention_shape &p, float *delta, float *lse_log2)
{
	int64_t blocks = ceil_div((int64_t)p.tokens * p.heads, DELTA_THREADS / WARP);

	return cuda_start(at, "attention_grad", attention_delta_kernel<T>, dim3((unsigned)blocks),
	        DELTA_THREADS, 0, p, delta, lse_log2, dev_ptr<T>(o->dout), dev_ptr<T>(o->out),
	        dev_ptr<float>(o->lse));
}

/* Without tiles: delta, and the plain kernels. */
static int plain_start(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p)
{
	float *delta = dev_ptr<float>(o->scratch);
	int rc = o->dtype == DTYPE_F32 ? delta_start<float>(at, o, p, delta, NULL)
	                               : delta_start<bf16>(at, o, p, delta, NULL);

	if (!rc)
		rc = attention_sink_grad(at, o, p);
	if (!rc)
		rc = attention_bias_grad(at, o, p);
	return rc ? rc : attention_plain_grad(at, o, p);
}

/* DQ and DKV: the tiles of the two passes. */
template <class DQ, class DKV>
static int tiles_start(const struct cuda_launch *at, const struct op_attention_grad *o,
        const attention_shape &p, void (*dq_kernel)(attention_shape, bf16 *, grad_inputs),
        void (*dkv_kernel)(attention_shape, bf16 *, bf16 *, grad_inputs))
{
	float *delta = dev_ptr<float>(o->scratch), *lse_log2 = delta + (int64_t)p.tokens * p.heads;
	const grad_inputs in = {dev_ptr<bf16>(o->dout), dev_ptr<bf16>(o->q), dev_ptr<bf16>(o->k),
	        dev_ptr<bf16>(o->v), lse_log2, delta};
	int64_t q_blocks = ceil_div(p.tokens, DQ::TQ) * p.heads;
	int64_t kv_blocks = ceil_div(p.tokens, DKV::TK) * p.kv_heads;
	int rc;

	if (DQ::SHARED_BYTES > at->shared_bytes_max || DKV::SHARED_BYTES > at->shared_bytes_max ||
	        q_blocks > INT32_MAX || kv_blocks > INT32_MAX)
		return plain_start(at, o, p);
	rc = delta_start<bf16>(at, o, p, delta, lse_log2);
	if (!rc)
		rc = attention_sink_grad(at, o, p);
	if (!rc)
		rc = attention_bias_grad(at, o, p);
	if (!rc)
		rc = cuda_start(at, "attention_grad", dq_kernel, dim3((unsigned)q_blocks), DQ::THREADS,
		        DQ::SHARED_BYTES, p, dev_ptr<bf16>(o->dq), in);
	if (!rc)
		rc = cuda_start(at, "attention_grad", dkv_kernel, dim3((unsigned)kv_blocks), DKV::THREADS,
		        DKV::SHARED_BYTES, p, dev_ptr<bf16>(o->dk), dev_ptr<bf16>(o->dv), in);
	return rc;
}

template <int D, int Q_M, int TK, int K_BUFFERS, int K_M, int TQ, int Q_BUFFERS>
static int grad_start(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p)
{
	using DQ = dq_tiles<D, Q_M, TK, K_BUFFERS>;
	using DKV = dkv_tiles<D, K_M, TQ, Q_BUFFERS>;
	const struct op_attention forward = attention_forward_of(o);

	const int any = attention_any(p, &forward);

	if (any == ANY_BIASED)
		return tiles_start<DQ, DKV>(at, o, p, attention_dq_kernel<D, Q_M, TK, K_BUFFERS, ANY_BIASED>,
		        attention_dkv_kernel<D, K_M, TQ, Q_BUFFERS, ANY_BIASED>);
	if (any)
		return tiles_start<DQ, DKV>(at, o, p, attention_dq_kernel<D, Q_M, TK, K_BUFFERS, ANY_MASK>,
		        attention_dkv_kernel<D, K_M, TQ, Q_BUFFERS, ANY_MASK>);
	return tiles_start<DQ, DKV>(at, o, p, attention_dq_kernel<D, Q_M, TK, K_BUFFERS, ANY_NOT>,
	        attention_dkv_kernel<D, K_M, TQ, Q_BUFFERS, ANY_NOT>);
}

/* Heads of 257 to 512: 64 queries for dq, or 32, in the room that a block may have. */
template <class DQ>
static int wide_start(const struct cuda_launch *at, const struct op_attention_grad *o,
        const attention_shape &p, void (*const (&dq)[3])(attention_shape, bf16 *, grad_inputs))
{
	constexpr void (*dkv[])(attention_shape, bf16 *, bf16 *, grad_inputs) = {
	        attention_wide_dkv_kernel<512, 4, ANY_NOT>, attention_wide_dkv_kernel<512, 4, ANY_MASK>,
	        attention_wide_dkv_kernel<512, 4, ANY_BIASED>};
	const struct op_attention forward = attention_forward_of(o);
	const int any = attention_any(p, &forward);

	return tiles_start<DQ, wide_dkv_tiles<512, 4>>(at, o, p, dq[any], dkv[any]);
}

static int wide_grad_start(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p)
{
#define TRY(...)                                                                                             \
	if (wide_dq_tiles<512, __VA_ARGS__>::SHARED_BYTES <= at->shared_bytes_max)                           \
	return wide_start<wide_dq_tiles<512, __VA_ARGS__>>(at, o, p,                                         \
	        {attention_wide_dq_kernel<512, __VA_ARGS__, ANY_NOT>,                                        \
	                attention_wide_dq_kernel<512, __VA_ARGS__, ANY_MASK>,                                \
	                attention_wide_dq_kernel<512, __VA_ARGS__, ANY_BIASED>})
	TRY(16, 8, 2); /* 179 KiB */
	TRY(32, 4, 2); /* 146 KiB */
	TRY(16, 4, 4); /* 73 KiB */
#undef TRY
	return plain_start(at, o, p);
}

extern "C" int cuda_attention_grad(const struct cuda_launch *at, const struct op_attention_grad *o)
{
	const struct op_attention forward = attention_forward_of(o);
	const dev_addr bases[] = {o->dq, o->dk, o->dv, o->dout};
	attention_shape p;
	int rc = attention_shape_set(&p, &forward);

	for (dev_addr a : bases)
		p.aligned = p.aligned && a.value % 16 == 0;
	if (rc)
		return rc;
	if (!attention_fits_tiles(&forward))
		return plain_start(at, o, p);
	if (o->head_dim <= 64)
		return grad_start<64, 2, 64, 2, 2, 64, 2>(at, o, p);
	if (o->head_dim <= 96)
		return grad_start<96, 2, 32, 2, 2, 64, 2>(at, o, p);
	if (o->head_dim <= 128) {
		/* 104 KiB with two buffers of q: not on capability 8.6, 8.9, 12.0 */
		if (dkv_tiles<128, 2, 64, 2>::SHARED_BYTES <= at->shared_bytes_max)
			return grad_start<128, 2, 32, 2, 2, 64, 2>(at, o, p);
		return grad_start<128, 2, 32, 2, 2, 64, 1>(at, o, p);
	}
	if (o->head_dim > 256)
		return wide_grad_start(at, o, p);
	return grad_start<256, 1, 32, 1, 1, 32, 2>(at, o, p);
}
