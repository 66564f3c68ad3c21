/* Shared by the attention kernels: the op as a kernel takes it, the keys that a query sees, and tiles of rows
 * in shared memory.
 *
 * Tiles. BF16 goes through the tensor cores (cuda_attention.cu, cuda_attention_grad.cu) in tiles of D
 * columns. D is the smallest of 64, 96, 128, 256 and 512 that holds head_dim; columns beyond head_dim are
 * zeros, which add nothing to any product. Other ops go through plain fp32 arithmetic
 * (cuda_attention_plain.cu): F32, wider heads, scales that are not positive, too little shared memory.
 *
 * Each kernel of tiles exists three times: for causal attention alone, which has their registers and
 * instructions for itself; with ANY for every mask, score caps and sinks; and ANY_BIASED with a bias too.
 *
 * A row of a tile takes D + 8 elements, 16 bytes more than its data. So the pitch is an odd number of 16-byte
 * chunks, and the 8 rows of one 8x8 matrix of ldmatrix fall on 8 different groups of banks. The addresses of
 * all fragments are one register plus a constant. An exclusive-or of chunk and row would save the 6 %, but
 * cost an instruction per load. */
#ifndef FERRY_GPU_ATTENTION_CUH
#define FERRY_GPU_ATTENTION_CUH

#include "gpu/mma.cuh"

extern "C" {
#include "device/op_attention.h"
}

/* Values of the kernels' ANY. */
enum { ANY_NOT, ANY_MASK, ANY_BIASED };

/* Strides in elements, scale_log2 = scale / ln 2. */
struct attention_shape {
	const int32_t *doc_start, *doc_end;
	int64_t qkv_stride, q_head_stride, kv_head_stride, out_stride;
	int tokens, heads, kv_heads, head_dim;
	int window;  /* at most tokens; equal to tokens: none */
	int aligned; /* every row of every operand begins at a multiple of 16 bytes */
	float scale, scale_log2;
	int bidirectional;
	float score_cap; /* 0: none */
	/* tiles: cap_top = score_cap / scale, cap_log2 = 2 / (cap_top ln 2), cap_slope = 1 / cap_top; or 0 */
	float cap_top, cap_log2, cap_slope;
	const void *bias; /* NULL: none; bias_factor = 1 / scale, as tiles scale scores last */
	float bias_factor;
};

/* The first key that query i sees, and one past the last; it sees all between. Neither decreases with i. */
static __device__ __forceinline__ int first_key(const attention_shape &p, int i)
{
	return max(p.doc_start[i], i - p.window + 1);
}

static __device__ __forceinline__ int key_end(const attention_shape &p, int i)
{
	return p.bidirectional ? min(p.doc_end[i], i + p.window) : i + 1;
}

/* One past the last query that sees key j, and the first one. Neither decreases with j. */
static __device__ __forceinline__ int query_end(const attention_shape &p, int j)
{
	return min(p.doc_end[j], j + p.window);
}

static __device__ __forceinline__ int first_query(const attention_shape &p, int j)
{
	return p.bidirectional ? first_key(p, j) : j;
}

template <int D> constexpr int PITCH = D + 8;

/* Lanes that move a row of a tile, 16 bytes each; a power of two. */
template <int D> constexpr int ROW_LANES = D <= 64 ? 8 : D <= 128 ? 16 : D <= 256 ? 32 : 64;

/* Loads rows [0, ROWS) of a tile from rows `stride` apart; rows from row_count on become zeros. With
 * p.aligned the copies are asynchronous and belong to the caller's next cp_async_commit. */
template <int D, int ROWS, int THREADS>
static __device__ __forceinline__ void tile_load(
        bf16 *to, const bf16 *from, int64_t stride, int row_count, const attention_shape &p)
{
	constexpr int STEP = THREADS / ROW_LANES<D>;
	int thread = in_place((int)threadIdx.x), column = thread % ROW_LANES<D> * 8,
	    row = thread / ROW_LANES<D>;
	int count = min(max(p.head_dim - column, 0), 8);
	const bf16 *at = from + row * stride + (count ? column : 0);

	if (ROW_LANES<D> * 8 > D && column >= D)
		return;
	to += row * PITCH<D> + column;
	if (p.aligned && row_count >= ROWS) {
#pragma unroll
		for (int n = 0; n < ROWS / STEP; n++, at = in_place(at + STEP * stride))
			cp_async_16(to + n * STEP * PITCH<D>, at, count * (int)sizeof(bf16));
		return;
	}
#pragma unroll 1
	for (; row < ROWS; row += STEP, at += STEP * stride, to += STEP * PITCH<D>) {
		int there = row < row_count ? count : 0;

		if (p.aligned)
			cp_async_16(to, there ? at : from, there * (int)sizeof(bf16));
		else
#pragma unroll 1
			for (int i = 0; i < 8; i++)
				to[i] = i < there ? at[i] : bf16{0};
	}
}

/* Stores rows of a tile from shared memory to rows `stride` apart, with `lanes` lanes of a warp or block. */
template <int D>
static __device__ __forceinline__ void tile_store(bf16 *to, const bf16 *from, int64_t stride, int row_count,
        const attention_shape &p, int lane, int lanes)
{
	int column = lane % ROW_LANES<D> * 8, count = min(p.head_dim - column, 8);

	for (int row = lane / ROW_LANES<D>; row < row_count; row += lanes / ROW_LANES<D>) {
		const vec<bf16, 8> chunk = *(const vec<bf16, 8> *)(from + row * PITCH<D> + column % D);
		bf16 *at = to + row * stride + column;

		if (p.aligned && count == 8) {
			*(vec<bf16, 8> *)at = chunk;
		} else {
			for (int i = 0; i < 8; i++)
				if (i < count)
					at[i] = chunk.at[i];
		}
	}
}

/* ---- fragments (mma.cuh): the place from which a lane reads 16x16 elements of a tile of pitch P ---- */

/* For operand a (rows x depth) and, transposed, for two operands b from tiles stored depth x columns. */
template <int P> static __device__ __forceinline__ int lane_rows(int lane)
{
	return (lane & 15) * P + (lane >> 4) * 8;
}

/* For two operands b from tiles stored columns x depth. */
template <int P> static __device__ __forceinline__ int lane_columns(int lane)
{
	return ((lane & 7) + (lane >> 4) * 8) * P + (lane >> 3 & 1) * 8;
}

/* s[16 M rows, 8 N columns] += a b^T over D columns of both tiles; a at its lane_rows, b at its lane_columns
 */
template <int D, int P, int M, int N>
static __device__ __forceinline__ void product_rows(float (&s)[M][N][4], const bf16 *a, const bf16 *b)
{
#pragma unroll
	for (int k = 0; k < D; k += 16) {
		uint32_t fa[M][4], fb[4];

#pragma unroll
		for (int m = 0; m < M; m++)
			ldmatrix_x4(fa[m], a + m * 16 * P + k);
#pragma unroll
		for (int n = 0; n < N; n += 2) {
			ldmatrix_x4(fb, b + n * 8 * P + k);
#pragma unroll
			for (int m = 0; m < M; m++) {
				mma_bf16(s[m][n], fa[m], fb);
				mma_bf16(s[m][n + 1], fa[m], fb + 2);
			}
		}
	}
}

/* o[16 M rows, 8 N columns] += s b over the 8 K columns of s, rounded to bf16 in registers: the accumulators
 * of one product have the layout of operand a of the next. b at its lane_rows. */
template <int P, int M, int N, int K>
static __device__ __forceinline__ void product_columns(
        float (&o)[M][N][4], const float (&s)[M][K][4], const bf16 *b)
{
#pragma unroll
	for (int k = 0; k < K; k += 2) {
		uint32_t fa[M][4], fb[4];

#pragma unroll
		for (int m = 0; m < M; m++) {
			fa[m][0] = bf16_pack(s[m][k][0], s[m][k][1]);
			fa[m][1] = bf16_pack(s[m][k][2], s[m][k][3]);
			fa[m][2] = bf16_pack(s[m][k + 1][0], s[m][k + 1][1]);
			fa[m][3] = bf16_pack(s[m][k + 1][2], s[m][k + 1][3]);
		}
#pragma unroll
		for (int n = 0; n < N; n += 2) {
			ldmatrix_x4_trans(fb, b + k * 8 * P + n * 8);
#pragma unroll
			for (int m = 0; m < M; m++) {
				mma_bf16(o[m][n], fa[m], fb);
				mma_bf16(o[m][n + 1], fa[m], fb + 2);
			}
		}
	}
}

/* o[16 M rows, 8 N columns] += a b over K columns of a, which is in shared memory with pitch PA; both at
 * their lane_rows. */
template <int PA, int P, int K, int M, int N>
static __device__ __forceinline__ void product_tiles(float (&o)[M][N][4], const bf16 *a, const bf16 *b)
{
#pragma unroll
	for (int k = 0; k < K; k += 16) {
		uint32_t fa[M][4], fb[4];

#pragma unroll
		for (int m = 0; m < M; m++)
			ldmatrix_x4(fa[m], a + m * 16 * PA + k);
#pragma unroll
		for (int n = 0; n < N; n += 2) {
			ldmatrix_x4_trans(fb, b + k * P + n * 8);
#pragma unroll
			for (int m = 0; m < M; m++) {
				mma_bf16(o[m][n], fa[m], fb);
				mma_bf16(o[m][n + 1], fa[m], fb + 2);
			}
		}
	}
}

template <int M, int N> static __device__ __forceinline__ void zero(float (&x)[M][N][4])
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				x[m][n][i] = 0;
}

/* Stores accumulators times factor[m][half of the 16 rows] as bf16 in shared memory, with row 0 and column 0
 * at `to`. */
template <int P, int M, int N>
static __device__ __forceinline__ void put_rows(
        bf16 *to, const float (&x)[M][N][4], const float (&factor)[M][2], int lane)
{
	to += lane / 4 * P + lane % 4 * 2;
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int half = 0; half < 2; half++)
				*(uint32_t *)(to + (m * 16 + half * 8) * P + n * 8) =
				        bf16_pack(x[m][n][half * 2] * factor[m][half],
				                x[m][n][half * 2 + 1] * factor[m][half]);
}

/* The same without factors. */
template <int P, int M, int N>
static __device__ __forceinline__ void put_rows(bf16 *to, const float (&x)[M][N][4], int lane)
{
	to += lane / 4 * P + lane % 4 * 2;
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int half = 0; half < 2; half++)
				*(uint32_t *)(to + (m * 16 + half * 8) * P + n * 8) =
				        bf16_pack(x[m][n][half * 2], x[m][n][half * 2 + 1]);
}

/* Caps scores: scale s becomes score_cap tanh(scale s / score_cap), within 2^-22 score_cap. */
template <int M, int N>
static __device__ __forceinline__ void cap_scores(float (&s)[M][N][4], const attention_shape &p)
{
	if (p.score_cap == 0)
		return;
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int c = 0; c < 4; c++)
				s[m][n][c] = fmaf(-2 * p.cap_top,
				        reciprocal_fast(1 + exp2_fast(s[m][n][c] * p.cap_log2)), p.cap_top);
}

/* The slope of the cap where it gave s, which is -inf where a mask hides it; 1 without a cap. */
static __device__ __forceinline__ float cap_slope(float s, const attention_shape &p)
{
	float t = fmaxf(s * p.cap_slope, -1.0f);

	return fmaf(-t, t, 1.0f);
}

/* Where the bias of a head has this distance, or the nearest one that exists: tiles reach beyond the tokens,
 * where masks hide all. */
static __device__ __forceinline__ int64_t bias_at(const attention_shape &p, int head, int distance)
{
	return (int64_t)head * 2 * p.tokens + min(max(p.tokens + distance, 0), 2 * p.tokens - 1);
}

/* Adds the bias to scores that are not scaled yet. `first` is the distance of the thread's first score, and a
 * score of a later row or column is `row_step` and `column_step` away: 1 for keys, -1 for queries. */
template <int M, int N>
static __device__ __forceinline__ void bias_scores(
        float (&s)[M][N][4], const attention_shape &p, int head, int first, int row_step, int column_step)
{
	const bf16 *bias = (const bf16 *)p.bias;

#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int c = 0; c < 4; c++) {
				int distance = first + row_step * (m * 16 + c / 2 * 8) +
				               column_step * (n * 8 + c % 2);

				s[m][n][c] = fmaf(to_float(bias[bias_at(p, head, distance)]), p.bias_factor,
				        s[m][n][c]);
			}
}

/* What ANY does to scores before a mask. */
template <int ANY, int M, int N>
static __device__ __forceinline__ void any_scores(
        float (&s)[M][N][4], const attention_shape &p, int head, int first, int row_step, int column_step)
{
	if (ANY)
		cap_scores(s, p);
	if (ANY == ANY_BIASED)
		bias_scores(s, p, head, first, row_step, column_step);
}

/* Sets scores to -inf where a query (row) does not see a key (column). `row` is the thread's first query,
 * `key` its first key. */
template <int ANY, int M, int N>
static __device__ __forceinline__ void mask_scores(
        float (&s)[M][N][4], const attention_shape &p, int row, int key)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			int i = row + m * 16 + half * 8, inside = min(i, p.tokens - 1),
			    low = first_key(p, inside) - key, high = (ANY ? key_end(p, inside) - 1 : i) - key;

#pragma unroll
			for (int n = 0; n < N; n++)
#pragma unroll
				for (int c = 0; c < 2; c++)
					if (n * 8 + c < low || n * 8 + c > high)
						s[m][n][half * 2 + c] = -INFINITY;
		}
}

/* ---- launchers ---- */

/* The plain kernels: any head_dim, strides and dtype. */
int attention_plain(const struct cuda_launch *at, const struct op_attention *o, const attention_shape &p);
int attention_plain_grad(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p);

/* Adds to dsink, if the op has one, from delta in scratch. */
int attention_sink_grad(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p);

/* Adds to dbias, if the op has one, from delta in scratch. */
int attention_bias_grad(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p);

/* 1 if tiles can compute the op, provided that shared memory has room for them. */
int attention_fits_tiles(const struct op_attention *o);

/* Their ANY for it. */
int attention_any(const attention_shape &p, const struct op_attention *o);

/* o: struct op_attention or op_attention_grad. 0, or ERR_UNSUPPORTED: token indices beyond 30 bits. */
int attention_shape_set(attention_shape *p, const struct op_attention *o);

/* The fields of backward that forward has too, for attention_shape_set; the others are 0. */
struct op_attention attention_forward_of(const struct op_attention_grad *g);

#endif
