/* The gated delta rule by chunks, through the tensor cores: what its three kernels share. host/cpu/delta.h
 * has the formulas of a chunk.
 *
 * Mental model. The columns of a state do not depend on each other. A warp has 16 of them, with their state
 * transposed, S^T [16, D], in registers: as the sum of one product, as the left side of the next. So a warp
 * walks over all chunks of a document without another warp. What all columns share, P and (I + A), the warps
 * of a block make together before. Each inverts one of four 16x16 blocks on the diagonal of I + A in fp32;
 * the rest is substitution by blocks.
 *
 * Numbers. q, k, v and dO are bf16 as they come, so products of two of them are exact. Lengths, gates and
 * decays are factors of rows and columns, in fp32, put where both sides are not bf16 anyway. Such a side x
 * goes into a product as two, bf16(x) and bf16(x - bf16(x)): 2^-17 of x is lost, not 2^-9. Sums and states
 * are fp32.
 *
 * Work. A block has DELTA_COLUMNS columns of a head and the documents that begin in DELTA_PART tokens. */
#ifndef FERRY_GPU_DELTA_CHUNK_CUH
#define FERRY_GPU_DELTA_CHUNK_CUH

#include "gpu/delta.cuh"
#include "gpu/mma.cuh"

enum { CHUNK = DELTA_CHUNK, CHUNK_WARPS = 4, CHUNK_THREADS = CHUNK_WARPS * WARP, DELTA_COLUMNS = 64 };
enum { DELTA_PART = 1024 };
enum { CHUNK_PITCH = CHUNK + 8, DIAGONAL_PITCH = 20 };

template <int D> constexpr int KEY_PITCH = D + 8; /* as in attention.cuh */

template <int N> static __device__ __forceinline__ void clear(float (&x)[N][4])
{
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int c = 0; c < 4; c++)
			x[n][c] = 0.0f;
}

/* ---- numbers in two halves ---- */

/* Two numbers as bf16, and what that leaves of them. */
struct halves {
	uint32_t high, low;
};

static __device__ __forceinline__ halves halves_of(float x, float y)
{
	halves h;

	h.high = bf16_pack(x, y);
	h.low = bf16_pack(x - __uint_as_float(h.high << 16), y - __uint_as_float(h.high & 0xffff0000u));
	return h;
}

/* Operand a of 16 rows and 16 columns, from the sums of two products of 8 columns each. */
struct operand {
	uint32_t high[4], low[4];
};

static __device__ __forceinline__ operand operand_of(const float (&left)[4], const float (&right)[4])
{
	operand a;

#pragma unroll
	for (int r = 0; r < 4; r++) {
		const float *x = (r < 2 ? left : right) + r % 2 * 2;
		const halves h = halves_of(x[0], x[1]);

		a.high[r] = h.high;
		a.low[r] = h.low;
	}
	return a;
}

/* The same, with a factor for each column. */
static __device__ __forceinline__ operand operand_of(
        const float (&left)[4], const float (&right)[4], const float *factor, int lane)
{
	const vec<float, 2> f = *(const vec<float, 2> *)(factor + lane % 4 * 2);
	const vec<float, 2> g = *(const vec<float, 2> *)(factor + lane % 4 * 2 + 8);
	const float x[4] = {left[0] * f.at[0], left[1] * f.at[1], left[2] * f.at[0], left[3] * f.at[1]};
	const float y[4] = {right[0] * g.at[0], right[1] * g.at[1], right[2] * g.at[0], right[3] * g.at[1]};

	return operand_of(x, y);
}

/* The numbers of an operand that is exact in bf16, as operand_of takes them. */
static __device__ __forceinline__ void operand_widen(
        float (&left)[4], float (&right)[4], const uint32_t (&a)[4])
{
#pragma unroll
	for (int r = 0; r < 4; r++) {
		float *x = (r < 2 ? left : right) + r % 2 * 2;

		x[0] = __uint_as_float(a[r] << 16);
		x[1] = __uint_as_float(a[r] & 0xffff0000u);
	}
}

/* d[2] += a b: two tiles of 8 columns, b in bf16 or in halves. */
static __device__ __forceinline__ void mma_halves(float (*d)[4], const operand &a, const uint32_t b[4])
{
	mma_bf16(d[0], a.high, b);
	mma_bf16(d[1], a.high, b + 2);
	mma_bf16(d[0], a.low, b);
	mma_bf16(d[1], a.low, b + 2);
}

static __device__ __forceinline__ void mma_halves(
        float (*d)[4], const operand &a, const uint32_t high[4], const uint32_t low[4])
{
	mma_halves(d, a, high);
	mma_bf16(d[0], a.high, low);
	mma_bf16(d[1], a.high, low + 2);
}

static __device__ __forceinline__ void mma_halves(
        float (*d)[4], const uint32_t a[4], const uint32_t high[4], const uint32_t low[4])
{
	mma_bf16(d[0], a, high);
	mma_bf16(d[1], a, high + 2);
	mma_bf16(d[0], a, low);
	mma_bf16(d[1], a, low + 2);
}

/* Where a lane reads 16x16 elements of a tile: as in attention.cuh. */
static __device__ __forceinline__ int lane_down(int pitch, int lane)
{
	return (lane & 15) * pitch + (lane >> 4) * 8;
}

static __device__ __forceinline__ int lane_across(int pitch, int lane)
{
	return ((lane & 7) + (lane >> 4) * 8) * pitch + (lane >> 3 & 1) * 8;
}

/* Two neighbours of a matrix in halves. */
static __device__ __forceinline__ void halves_put(bf16 *high, bf16 *low, int at, float x, float y)
{
	const halves h = halves_of(x, y);

	*(uint32_t *)(high + at) = h.high;
	*(uint32_t *)(low + at) = h.low;
}

/* ---- documents and chunks ---- */

/* The first token from `low` on whose document begins at `start` or later; `tokens`: none. */
static __device__ __forceinline__ int document_find(const int32_t *doc_start, int low, int tokens, int start)
{
	int high = tokens;

	while (low < high) {
		const int middle = low + (high - low) / 2;

		if (doc_start[middle] >= start)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* The chunks of the documents that begin in one part of the tokens, forward or, in each document, backward.
 */
struct chunk_walk {
	const int32_t *doc_start;
	int tokens, limit, start, end, first; /* start, end: of the document; first: of the chunk */

	__device__ __forceinline__ bool is_done() const { return start >= limit; }
	__device__ __forceinline__ int count() const { return min(end - first, (int)CHUNK); }
	__device__ __forceinline__ bool is_first() const { return first == start; }
	__device__ __forceinline__ bool is_last() const { return first + CHUNK >= end; }

	__device__ __forceinline__ void enter(int token, bool backward)
	{
		start = token;
		if (is_done())
			return;
		end = document_find(doc_start, start, tokens, start + 1);
		first = backward ? start + (end - 1 - start) / CHUNK * CHUNK : start;
	}

	__device__ __forceinline__ void next(bool backward)
	{
		first += backward ? -CHUNK : CHUNK;
		if (backward ? first < start : first >= end)
			enter(end, backward);
	}
};

template <class T>
static __device__ __forceinline__ chunk_walk chunk_walk_of(const delta_args<T> &p, int part, bool backward)
{
	const int tokens = (int)p.tokens, from = part * DELTA_PART;
	chunk_walk w = {p.doc_start, tokens, min(from + (int)DELTA_PART, tokens), 0, 0, 0};

	w.enter(document_find(p.doc_start, from, tokens, from), backward);
	return w;
}

/* ---- the scratch of backward: for each head, the states of its chunks and rows for its tokens ---- */

/* A token has dq and dk for q and k of length 1. In their place, if keys are not wide, a chunk first holds
 * V'^T, r^T and dS^T, each in two planes of bf16. */
struct chunk_room {
	float *base;
	int64_t heads, tokens, size, states; /* size: floats of a state */
	int64_t row, keys, held; /* floats of a token: in all, of its dq and dk, of what chunks hold before */
};

enum chunk_stat { STAT_DG, STAT_DBETA, STAT_DSKIP, STAT_COUNT };

static inline chunk_room chunk_room_of(const struct op_delta_grad *o)
{
	const int64_t row = delta_row_count(o->key_dim, o->value_dim);
	const int64_t keys = o->key_dim > DELTA_KEYS_AT_ONCE ? 2 * o->key_dim : row;

	return {dev_ptr<float>(o->scratch), o->value_heads, o->tokens, o->key_dim * o->value_dim,
	        delta_states(o->tokens), row, keys, keys == row ? row : row - keys};
}

/* The state before a chunk that is not its document's first (host/cpu/cpu_delta_grad.c has the same places).
 */
static __device__ __forceinline__ bf16 *chunk_state(const chunk_room &s, int64_t head, int start, int first)
{
	return (bf16 *)(s.base + (head * s.states + start / CHUNK + (first - start) / CHUNK - 1) * s.size);
}

static __device__ __forceinline__ float *chunk_head(const chunk_room &s, int64_t head)
{
	return s.base + s.heads * s.states * s.size + head * s.tokens * s.row;
}

/* dq of a token, then dk. */
static __device__ __forceinline__ float *chunk_keys(const chunk_room &s, int64_t head, int64_t token)
{
	return chunk_head(s, head) + token * s.keys;
}

/* What the chunk that begins at `first` holds: V'^T and r^T [value_dim][count], dS^T [value_dim][key_dim]. */
static __device__ __forceinline__ bf16 *chunk_held(const chunk_room &s, int64_t head, int64_t first)
{
	return (bf16 *)(chunk_head(s, head) + (s.keys == s.row ? 0 : s.tokens * s.keys) + first * s.held);
}

static __device__ __forceinline__ float *chunk_stats(const chunk_room &s, int64_t head, enum chunk_stat stat)
{
	return s.base + s.heads * (s.states * s.size + s.tokens * s.row) +
	       (head * STAT_COUNT + stat) * s.tokens;
}

/* ---- tiles ---- */

/* Loads ROWS rows of COLS columns, of which `rows` and `cols` exist; the rest becomes zeros. Copies are
 * asynchronous where `aligned`: each row begins at a multiple of 16 bytes. */
template <int ROWS, int COLS, int THREADS>
static __device__ __forceinline__ void chunk_load(
        bf16 *to, int pitch, const bf16 *from, int64_t stride, int64_t rows, int64_t cols, bool aligned)
{
	for (int i = (int)threadIdx.x; i < ROWS * (COLS / 8); i += THREADS) {
		const int row = i / (COLS / 8), column = i % (COLS / 8) * 8;
		const int there = row < rows ? (int)min(max(cols - column, (int64_t)0), (int64_t)8) : 0;
		const bf16 *at = there ? from + row * stride + column : from;
		bf16 *place = to + row * pitch + column;

		if (aligned)
			cp_async_16(place, at, there * (int)sizeof(bf16));
		else
#pragma unroll 1
			for (int j = 0; j < 8; j++)
				place[j] = j < there ? at[j] : bf16{0};
	}
}

/* The sum of squares of a row whose start is aligned to 16 bytes; cols: a multiple of 8. */
static __device__ __forceinline__ float chunk_square(const bf16 *row, int64_t cols)
{
	float square = 0.0f;

	for (int64_t d = 0; d < cols; d += 8) {
		const vec<bf16, 8> x = *(const vec<bf16, 8> *)(row + d);

#pragma unroll
		for (int i = 0; i < 8; i++)
			square = fmaf(to_float(x.at[i]), to_float(x.at[i]), square);
	}
	return square;
}

/* What the tokens of a chunk are multiplied with, [64] each. b2: the sum of g in the chunk / ln 2. */
struct chunk_factors {
	float *beta, *b2, *e, *rest, *q_unit, *k_unit; /* rest: exp(b_c - b) */
	float *read, *write, *out;                     /* e k_unit; rest k_unit; e q_unit scale */
	float *total;                                  /* [1]: exp(b_c) */
};

enum { FACTOR_FLOATS = 9 * CHUNK + 4 };

static __device__ __forceinline__ chunk_factors chunk_factors_at(float *base)
{
	return {base, base + CHUNK, base + 2 * CHUNK, base + 3 * CHUNK, base + 4 * CHUNK, base + 5 * CHUNK,
	        base + 6 * CHUNK, base + 7 * CHUNK, base + 8 * CHUNK, base + 9 * CHUNK};
}

/* One warp: gates of a chunk's tokens. Tokens beyond `count` change nothing. */
template <class T>
static __device__ __forceinline__ void chunk_gates(
        const chunk_factors &f, const delta_args<T> &p, int64_t head, int64_t first, int count)
{
	const int lane = (int)threadIdx.x % WARP;
	float carry = 0.0f, b[2];

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int i = half * WARP + lane;
		const delta_gate_value gate =
		        i < count ? delta_gate_at(p, first + i, head) : delta_gate_value{0, 0, 0, 0};
		float sum = gate.g * 1.44269504f;

		f.beta[i] = to_float(from_float<T>(gate.sigmoid));
		for (int away = 1; away < WARP; away *= 2) {
			const float before = __shfl_up_sync(0xffffffffu, sum, away);

			if (lane >= away)
				sum += before;
		}
		b[half] = sum + carry;
		carry = __shfl_sync(0xffffffffu, b[half], WARP - 1);
	}
#pragma unroll
	for (int half = 0; half < 2; half++) {
		f.b2[half * WARP + lane] = b[half];
		f.e[half * WARP + lane] = exp2_fast(b[half]);
		f.rest[half * WARP + lane] = exp2_fast(carry - b[half]);
	}
	if (lane == 0)
		*f.total = exp2_fast(carry);
}

/* Products of factors, once q_unit, k_unit and the gates are there. */
static __device__ __forceinline__ void chunk_factors_join(const chunk_factors &f, float scale)
{
	const int i = (int)threadIdx.x;

	if (i >= CHUNK)
		return;
	f.read[i] = f.e[i] * f.k_unit[i];
	f.write[i] = f.rest[i] * f.k_unit[i];
	f.out[i] = f.e[i] * f.q_unit[i] * scale;
}

/* ---- launchers ---- */

struct delta_widths {
	int64_t key_dim, value_dim, value_heads;
	bool is_scan;
	enum dtype dtype;
};

/* The width of tiles (64, 128 or 256) by which chunks do an op; 0: it goes token by token. */
int delta_width_of(const struct cuda_launch *at, const delta_widths &w);

template <class O> int delta_width_of(const struct cuda_launch *at, const O *o)
{
	return delta_width_of(
	        at, delta_widths{o->key_dim, o->value_dim, o->value_heads, o->rule == DELTA_SCAN, o->dtype});
}

int delta_by_chunk(const struct cuda_launch *at, const struct op_delta *o, int width);

/* Backward: the two walks, then dq, dk and the sums of the gates of each chunk. */
int delta_grad_walks(const struct cuda_launch *at, const struct op_delta_grad *o, int width);
int delta_grad_local(const struct cuda_launch *at, const struct op_delta_grad *o, int width);

#endif
