/* Attention forward through the tensor cores: FlashAttention-2 (Dao 2023). */
#include "gpu/attention_wide.cuh"

extern "C" {
#include "base/err.h"
}

OP_ATTENTION_LIST(CUDA_DECLARE)

/* A block computes TQ queries of one head. It walks over the keys that they see, TK at a time, with the
 * running maximum and sum of Milakov and Gimelshein (2018). Scores and probabilities stay in registers.
 * Probabilities are rounded to bf16 for their product with v.
 *
 * Tiles. An m16n8k16 product takes about 1.6 clocks of a multiprocessor of an H100 (mma.sync reaches some 60
 * % of wgmma). 16x16 elements of an operand from shared memory take 4. A warp of 16 M rows does 2 M products
 * with each such piece of k or v. So M = 1 waits for shared memory (4 > 3.2) and M = 2 does not. 32 rows of
 * 128 columns are 128 accumulators a thread; 64 scores (TK = 64) take the rest of 255 registers. A block has
 * 4 warps, 128 queries and 68 KiB of shared memory. Two blocks fit a multiprocessor: one multiplies while the
 * other computes its softmax. k of the next tile arrives during the softmax and the second product of this
 * one, v during the first product. A second buffer for each would gain nothing that the other block does not
 * hide. At D = 256 only 16 rows a warp fit.
 *
 * Work. A block visits only tiles with a key that one of its queries sees. Only tiles on the border (the
 * diagonal, the window, a document's first token) compare indices. A warp skips a tile if its rows see
 * nothing of it. Blocks with late queries see the most keys and go first. Heads run fastest, so the query
 * heads of one kv head meet in the cache. */

template <int D, int M, int TK> struct forward_tiles {
	static constexpr int WARPS = 4, THREADS = WARPS * WARP, ROWS = 16 * M, TQ = WARPS * ROWS;
	static constexpr int SHARED_BYTES = (TQ + 2 * TK) * PITCH<D> * (int)sizeof(bf16);
};

template <int D, int M, int TK, int ANY>
static __global__ void __launch_bounds__(forward_tiles<D, M, TK>::THREADS, 2) attention_kernel(
        const attention_shape p, bf16 *__restrict__ out, float *__restrict__ lse, const bf16 *__restrict__ q,
        const bf16 *__restrict__ k, const bf16 *__restrict__ v, const bf16 *__restrict__ sink)
{
	using tiles = forward_tiles<D, M, TK>;
	constexpr int P = PITCH<D>, TQ = tiles::TQ, THREADS = tiles::THREADS;
	SHARED_DYNAMIC(bf16, q_tile);
	bf16 *k_tile = q_tile + TQ * P, *v_tile = k_tile + TK * P;
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
	float s[M][TK / 8][4], o[M][D / 8][4], factor[M][2];
	softmax<M> state;
	int64_t kv_at = k0 * p.qkv_stride + kv_head * p.kv_head_stride;

	tile_load<D, TQ, THREADS>(
	        q_tile, q + q0 * p.qkv_stride + head * p.q_head_stride, p.qkv_stride, q_end - q0, p);
	tile_load<D, TK, THREADS>(k_tile, k + kv_at, p.qkv_stride, p.tokens - k0, p);
	cp_async_commit();
	zero(o);
#pragma unroll
	for (int m = 0; m < M; m++)
		for (int half = 0; half < 2; half++) {
			/* a sink is a score without a value, in the columns of one of four threads */
			state.max[m][half] = ANY && sink ? to_float(sink[head]) / p.scale : -INFINITY;
			state.sum[m][half] = ANY && sink && lane % 4 == 0 ? 1.0f : 0.0f;
		}

	for (; k0 < k_end; k0 += TK) {
		const bool sees = k0 < warp_end && k0 + TK > warp_first;

		cp_async_wait<0>();
		__syncthreads(); /* k is there, and v free */
		tile_load<D, TK, THREADS>(v_tile, v + kv_at, p.qkv_stride, p.tokens - k0, p);
		cp_async_commit();
		if (sees) {
			zero(s);
			product_rows<D, P>(s, q_tile + warp_row * P + lane_rows<P>(lane),
			        k_tile + lane_columns<P>(lane));
		}
		cp_async_wait<0>();
		__syncthreads(); /* v is there, and k free */
		kv_at += TK * p.qkv_stride;
		if (k0 + TK < k_end)
			tile_load<D, TK, THREADS>(k_tile, k + kv_at, p.qkv_stride, p.tokens - k0 - TK, p);
		cp_async_commit();
		if (sees) {
			any_scores<ANY>(s, p, head, k0 + lane % 4 * 2 - row0 - lane / 4, -1, 1);
			if (k0 + TK > warp_all_end || k0 < warp_all)
				mask_scores<ANY>(s, p, in_place(row0) + lane / 4, k0 + lane % 4 * 2);
			softmax_step(state, s, o, p.scale_log2);
			product_columns<P>(o, s, v_tile + lane_rows<P>(lane));
		}
	}

#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int row = row0 + m * 16 + half * 8 + lane / 4;
			float sum = state.sum[m][half];

			sum += __shfl_xor_sync(0xffffffffu, sum, 1);
			sum += __shfl_xor_sync(0xffffffffu, sum, 2);
			factor[m][half] = 1 / sum;
			if (lane % 4 == 0 && row < q_end)
				lse[(int64_t)row * p.heads + head] =
				        (state.max[m][half] * p.scale_log2 + log2f(sum)) * 0.69314718f;
		}
	/* each warp stores through its own rows of q's tile, which no other warp reads */
	put_rows<P>(q_tile + warp_row * P, o, factor, lane);
	__syncwarp();
	tile_store<D>(out + row0 * p.out_stride + (int64_t)head * p.head_dim, q_tile + warp_row * P,
	        p.out_stride, row_last + 1 - row0, p, lane, WARP);
}

template <int D, int M, int TK>
static int attention_start(
        const struct cuda_launch *at, const struct op_attention *o, const attention_shape &p)
{
	using tiles = forward_tiles<D, M, TK>;
	const int any = attention_any(p, o);
	const auto kernel = any == ANY_BIASED ? attention_kernel<D, M, TK, ANY_BIASED>
	                    : any             ? attention_kernel<D, M, TK, ANY_MASK>
	                                      : attention_kernel<D, M, TK, ANY_NOT>;
	int64_t blocks = ceil_div(p.tokens, tiles::TQ) * p.heads;

	if (tiles::SHARED_BYTES > at->shared_bytes_max || blocks > INT32_MAX)
		return attention_plain(at, o, p);
	return cuda_start(at, "attention", kernel, dim3((unsigned)blocks), tiles::THREADS,
	        tiles::SHARED_BYTES, p, dev_ptr<bf16>(o->out), dev_ptr<float>(o->lse), dev_ptr<bf16>(o->q),
	        dev_ptr<bf16>(o->k), dev_ptr<bf16>(o->v), dev_ptr<bf16>(o->sink));
}

/* Heads of 257 to 512. */
template <int TK, int WARPS>
static int wide_start(const struct cuda_launch *at, const struct op_attention *o, const attention_shape &p)
{
	using tiles = wide_forward_tiles<512, TK, WARPS, 2>;
	const int any = attention_any(p, o);
	const auto kernel = any == ANY_BIASED ? attention_wide_kernel<512, TK, WARPS, 2, ANY_BIASED>
	                    : any             ? attention_wide_kernel<512, TK, WARPS, 2, ANY_MASK>
	                                      : attention_wide_kernel<512, TK, WARPS, 2, ANY_NOT>;
	int64_t blocks = ceil_div(p.tokens, tiles::TQ) * p.heads;

	if (tiles::SHARED_BYTES > at->shared_bytes_max || blocks > INT32_MAX)
		return attention_plain(at, o, p);
	return cuda_start(at, "attention", kernel, dim3((unsigned)blocks), tiles::THREADS,
	        tiles::SHARED_BYTES, p, dev_ptr<bf16>(o->out), dev_ptr<float>(o->lse), dev_ptr<bf16>(o->q),
	        dev_ptr<bf16>(o->k), dev_ptr<bf16>(o->v), dev_ptr<bf16>(o->sink));
}

int attention_shape_set(attention_shape *p, const struct op_attention *o)
{
	const dev_addr bases[] = {o->out, o->q, o->k, o->v};

	*p = {};
	if (o->tokens > 1 << 30 || o->heads > INT32_MAX || o->head_dim > INT32_MAX)
		return err_set(ERR_UNSUPPORTED, "attention: %lld tokens, %lld heads of %lld are too many",
		        (long long)o->tokens, (long long)o->heads, (long long)o->head_dim);
	p->doc_start = dev_ptr<int32_t>(o->doc_start);
	p->doc_end = dev_ptr<int32_t>(o->doc_end);
	p->qkv_stride = o->qkv_stride;
	p->q_head_stride = o->q_head_stride;
	p->kv_head_stride = o->kv_head_stride;
	p->out_stride = o->out_stride;
	p->tokens = (int)o->tokens;
	p->heads = (int)o->heads;
	p->kv_heads = (int)o->kv_heads;
	p->head_dim = (int)o->head_dim;
	p->window = (int)(o->window > 0 && o->window < o->tokens ? o->window : o->tokens);
	p->scale = (float)o->scale;
	p->scale_log2 = (float)(o->scale * 1.4426950408889634);
	p->bidirectional = o->mask == MASK_BIDIRECTIONAL;
	p->score_cap = (float)o->score_cap;
	if (o->score_cap > 0 && o->scale > 0) {
		p->cap_top = (float)(o->score_cap / o->scale);
		p->cap_log2 = (float)(2 * 1.4426950408889634 * o->scale / o->score_cap);
		p->cap_slope = (float)(o->scale / o->score_cap);
	}
	p->bias = dev_is_none(o->bias) ? NULL : dev_ptr<void>(o->bias);
	p->bias_factor = (float)(1 / o->scale);
	p->aligned = o->qkv_stride % 8 == 0 && o->out_stride % 8 == 0 &&
	             (o->heads == 1 || (o->q_head_stride % 8 == 0 && o->head_dim % 8 == 0)) &&
	             (o->kv_heads == 1 || o->kv_head_stride % 8 == 0);
	for (dev_addr a : bases)
		p->aligned = p->aligned && a.value % 16 == 0;
	return 0;
}

int attention_fits_tiles(const struct op_attention *o)
{
	return o->dtype == DTYPE_BF16 && o->scale > 0 && o->head_dim <= 512;
}

int attention_any(const attention_shape &p, const struct op_attention *o)
{
	if (p.bias)
		return ANY_BIASED;
	return p.bidirectional || p.score_cap > 0 || !dev_is_none(o->sink) ? ANY_MASK : ANY_NOT;
}

extern "C" int cuda_attention(const struct cuda_launch *at, const struct op_attention *o)
{
	attention_shape p;
	int rc = attention_shape_set(&p, o);

	if (rc)
		return rc;
	if (!attention_fits_tiles(o))
		return attention_plain(at, o, p);
	if (o->head_dim <= 64)
		return attention_start<64, 2, 64>(at, o, p);
	if (o->head_dim <= 96)
		return attention_start<96, 2, 64>(at, o, p);
	if (o->head_dim <= 128)
		return attention_start<128, 2, 64>(at, o, p);
	if (o->head_dim <= 256)
		return attention_start<256, 1, 64>(at, o, p);
	/* 146 KiB: not on capability 8.6, 8.9, 12.0 */
	if (wide_forward_tiles<512, 32, 8, 2>::SHARED_BYTES <= at->shared_bytes_max)
		return wide_start<32, 8>(at, o, p);
	return wide_start<16, 4>(at, o, p);
}
