/* The part of the two walks over chunks (cuda_delta_chunk.cu) that they share: tiles of a chunk in shared
 * memory, P, and I + A with its inverted diagonal. */
#ifndef FERRY_GPU_DELTA_WALK_CUH
#define FERRY_GPU_DELTA_WALK_CUH

#include "gpu/delta_chunk.cuh"

/* Shared memory of a walk. P and -A are in halves [64][CHUNK_PITCH]; on the diagonal of -A are the inverted
 * blocks of I + A. What the block does not need takes no room. */
struct walk_shared {
	bf16 *tiles; /* of all stages */
	int stage;
	bf16 *k, *q, *value; /* value: v forward, dO backward; DELTA_COLUMNS of them */
	bf16 *a_high, *a_low, *p_high, *p_low;
	float *diagonal; /* [4][16][DIAGONAL_PITCH] */
	chunk_factors factors;
};

/* Bytes of a stage of tiles, and of all else. */
static __host__ __device__ constexpr int walk_stage_bytes(int d, bool has_q)
{
	return CHUNK * ((1 + has_q) * (d + 8) + CHUNK_PITCH) * 2;
}

static __host__ __device__ constexpr int walk_rest_bytes(bool is_scan, bool has_q)
{
	return (is_scan ? 0 : 2 * CHUNK * CHUNK_PITCH * 2 + CHUNK_WARPS * 16 * DIAGONAL_PITCH * 4) +
	       (has_q ? 2 * CHUNK * CHUNK_PITCH * 2 : 0) + FACTOR_FLOATS * 4;
}

template <int D>
static __device__ __forceinline__ walk_shared walk_shared_at(bf16 *base, int stages, bool is_scan, bool has_q)
{
	bf16 *at = base + stages * walk_stage_bytes(D, has_q) / 2;
	walk_shared s = {};

	s.tiles = base;
	if (!is_scan) {
		s.a_high = at;
		s.a_low = s.a_high + CHUNK * CHUNK_PITCH;
		s.diagonal = (float *)(s.a_low + CHUNK * CHUNK_PITCH);
		at = (bf16 *)(s.diagonal + CHUNK_WARPS * 16 * DIAGONAL_PITCH);
	}
	if (has_q) {
		s.p_high = at;
		s.p_low = s.p_high + CHUNK * CHUNK_PITCH;
		at = s.p_low + CHUNK * CHUNK_PITCH;
	}
	s.factors = chunk_factors_at((float *)at);
	return s;
}

template <int D> static __device__ __forceinline__ void walk_stage(walk_shared &s, int stage, bool has_q)
{
	s.k = s.tiles + stage * (walk_stage_bytes(D, has_q) / 2);
	s.q = s.k + CHUNK * KEY_PITCH<D>;
	s.value = s.q + (has_q ? CHUNK * KEY_PITCH<D> : 0);
}

/* What a walk's kernel takes beside the op: `value` is v or dO, of value_stride. */
struct walk_inputs {
	const bf16 *value;
	int64_t value_stride;
	int stages, aligned;
};

template <int D>
static __device__ __forceinline__ void walk_load(const walk_shared &s, const delta_args<bf16> &p,
        const walk_inputs &in, const chunk_walk &w, int64_t head, int64_t column, bool has_q)
{
	const int64_t key = head / (p.value_heads / p.key_heads), at = w.first * p.qkv_stride + key * p.dk;

	chunk_load<CHUNK, D, CHUNK_THREADS>(
	        s.k, KEY_PITCH<D>, p.k + at, p.qkv_stride, w.count(), p.dk, in.aligned);
	if (has_q)
		chunk_load<CHUNK, D, CHUNK_THREADS>(
		        s.q, KEY_PITCH<D>, p.q + at, p.qkv_stride, w.count(), p.dk, in.aligned);
	chunk_load<CHUNK, DELTA_COLUMNS, CHUNK_THREADS>(s.value, CHUNK_PITCH,
	        in.value + w.first * in.value_stride + head * p.dv + column, in.value_stride, w.count(),
	        p.dv - column, in.aligned);
}

/* The tiles of the first chunk. */
template <int D>
static __device__ __forceinline__ void walk_start(walk_shared &s, const delta_args<bf16> &p,
        const walk_inputs &in, const chunk_walk &w, int64_t head, int64_t column, bool has_q)
{
	walk_stage<D>(s, 0, has_q);
	if (!w.is_done())
		walk_load<D>(s, p, in, w, head, column, has_q);
	cp_async_commit();
}

/* Waits for the tiles of a chunk. With two stages those of the next one, `ahead`, follow beside the work. */
template <int D>
static __device__ __forceinline__ void walk_wait(walk_shared &s, const delta_args<bf16> &p,
        const walk_inputs &in, const chunk_walk &ahead, int64_t head, int64_t column, bool has_q)
{
	cp_async_wait<0>();
	__syncthreads(); /* the tiles are there; all else is free */
	if (in.stages == 2 && !ahead.is_done()) {
		walk_stage<D>(s, s.stage ^ 1, has_q);
		walk_load<D>(s, p, in, ahead, head, column, has_q);
		walk_stage<D>(s, s.stage, has_q);
	}
	cp_async_commit();
}

/* After a chunk: turns to the other stage, or fills the only one. */
template <int D>
static __device__ __forceinline__ void walk_turn(walk_shared &s, const delta_args<bf16> &p,
        const walk_inputs &in, const chunk_walk &ahead, int64_t head, int64_t column, bool has_q)
{
	if (in.stages == 2) {
		s.stage ^= 1;
		walk_stage<D>(s, s.stage, has_q);
		return;
	}
	__syncthreads(); /* the tiles are free */
	if (!ahead.is_done())
		walk_load<D>(s, p, in, ahead, head, column, has_q);
	cp_async_commit();
}

/* K K^T or Q K^T of a warp's 16 tokens, whose rows are given, with those before and itself. */
template <int D>
static __device__ __forceinline__ void walk_products(
        float (&x)[CHUNK / 8][4], const bf16 *rows, const bf16 *k, int warp, int lane)
{
	constexpr int P = KEY_PITCH<D>;

	rows += warp * 16 * P + lane_down(P, lane);
	k += lane_across(P, lane);
#pragma unroll 4
	for (int d = 0; d < D; d += 16) {
		uint32_t a[4], b[4];

		ldmatrix_x4(a, rows + d);
#pragma unroll
		for (int n = 0; n < CHUNK / 8; n += 2)
			if (n <= 2 * warp) {
				ldmatrix_x4(b, k + n * 8 * P + d);
				mma_bf16(x[n], a, b);
				mma_bf16(x[n + 1], a, b + 2);
			}
	}
}

/* A = lower(x diag(row) Gamma diag(k_unit)) in halves: -A strictly lower with its blocks on the diagonal as
 * they are, for walk_invert, or P with the diagonal. */
template <bool IS_A>
static __device__ __forceinline__ void walk_decay(const walk_shared &s, const float (&x)[CHUNK / 8][4],
        const float *row, float factor, int warp, int lane)
{
	const chunk_factors &f = s.factors;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int in_block = lane / 4 + half * 8, i = warp * 16 + in_block;
		const float b = f.b2[i], of_row = row[i] * (IS_A ? f.beta[i] : factor);

#pragma unroll
		for (int n = 0; n < CHUNK / 8; n++) {
			const int j = n * 8 + lane % 4 * 2;
			const vec<float, 2> unit = *(const vec<float, 2> *)(f.k_unit + j);
			const vec<float, 2> off = *(const vec<float, 2> *)(f.b2 + j);
			float y[2];

			if (n > 2 * warp + 1)
				continue;
#pragma unroll
			for (int c = 0; c < 2; c++)
				y[c] = j + c < i + !IS_A ? x[n][half * 2 + c] * of_row * unit.at[c] *
				                                   exp2_fast(b - off.at[c])
				                         : 0.0f;
			if (!IS_A)
				halves_put(s.p_high, s.p_low, i * CHUNK_PITCH + j, y[0], y[1]);
			else if (n < 2 * warp)
				halves_put(s.a_high, s.a_low, i * CHUNK_PITCH + j, -y[0], -y[1]);
			else
				*(vec<float, 2> *)(s.diagonal + (warp * 16 + in_block) * DIAGONAL_PITCH + j -
				                   warp * 16) = {y[0], y[1]};
		}
	}
}

/* A warp inverts I + its block of A: lane c (and c + 16) solves for column c. */
static __device__ __forceinline__ void walk_invert(const walk_shared &s, int warp, int lane)
{
	const float *a = s.diagonal + warp * 16 * DIAGONAL_PITCH;
	const int column = lane % 16, at = (warp * 16) * CHUNK_PITCH + warp * 16 + column;
	float x[16];

#pragma unroll
	for (int i = 0; i < 16; i++) {
		float even = i == column ? 1.0f : 0.0f, odd = 0.0f;

#pragma unroll
		for (int m = 0; m < i; m += 4) {
			const vec<float, 4> row = *(const vec<float, 4> *)(a + i * DIAGONAL_PITCH + m);

#pragma unroll
			for (int c = 0; c < 4; c++)
				if (m + c < i) {
					float &sum = c % 2 ? odd : even;

					sum = fmaf(-row.at[c], x[m + c], sum);
				}
		}
		x[i] = even + odd;
	}
	/* the upper half of the lanes writes the lower half of the rows */
#pragma unroll
	for (int i = 0; i < 8; i++) {
		const float value = lane < 16 ? x[i] : x[i + 8];
		const halves h = halves_of(value, 0.0f);
		const int row = (lane < 16 ? i : i + 8) * CHUNK_PITCH;

		s.a_high[at + row] = bf16{(uint16_t)h.high};
		s.a_low[at + row] = bf16{(uint16_t)h.low};
	}
}

/* Once the tiles are there: all of walk_shared. Ends with a barrier. */
template <int D>
static __device__ __forceinline__ void walk_prepare(
        const walk_shared &s, const delta_args<bf16> &p, const chunk_walk &w, int64_t head, bool has_q)
{
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	const int row = (int)threadIdx.x % CHUNK, side = (int)threadIdx.x / CHUNK;

	if (side == 0 || has_q)
		(side ? s.factors.q_unit : s.factors.k_unit)[row] =
		        p.is_scan ? 1.0f
		                  : 1.0f / sqrtf(chunk_square((side ? s.q : s.k) + row * KEY_PITCH<D>, D) +
		                                   p.epsilon);
	else
		s.factors.q_unit[row] = 1.0f;
	if (warp == 0) /* it has the fewest products */
		chunk_gates(s.factors, p, head, w.first, w.count());
	__syncthreads(); /* factors are there */
	chunk_factors_join(s.factors, p.scale);
	if (!p.is_scan) {
		float x[CHUNK / 8][4] = {};

		walk_products<D>(x, s.k, s.k, warp, lane);
		walk_decay<true>(s, x, s.factors.k_unit, 1.0f, warp, lane);
		__syncwarp();
		walk_invert(s, warp, lane);
	}
	if (has_q) {
		float x[CHUNK / 8][4] = {};

		walk_products<D>(x, s.q, s.k, warp, lane);
		walk_decay<false>(s, x, s.factors.q_unit, p.scale, warp, lane);
	}
	__syncthreads(); /* A, P and all factors are there */
}

/* x += S^T rows^T, of all tokens of a tile of k or q */
template <int D>
static __device__ __forceinline__ void walk_read(
        float (&x)[CHUNK / 8][4], const float (&state)[D / 8][4], const bf16 *rows, int lane)
{
	constexpr int P = KEY_PITCH<D>;
	const bf16 *from = rows + lane_across(P, lane);

#pragma unroll
	for (int d = 0; d < D / 8; d += 2) {
		const operand s = operand_of(state[d], state[d + 1]);

#pragma unroll
		for (int n = 0; n < CHUNK / 8; n += 2) {
			uint32_t b[4];

			ldmatrix_x4(b, from + n * 8 * P + d * 8);
			mma_halves(&x[n], s, b);
		}
	}
}

/* state += x rows over 16 tokens: `rows` is their first in the tile. */
template <int D>
static __device__ __forceinline__ void walk_write(
        float (&state)[D / 8][4], const operand &x, const bf16 *rows, int lane)
{
	const bf16 *from = rows + lane_down(KEY_PITCH<D>, lane);

#pragma unroll
	for (int d = 0; d < D / 8; d += 2) {
		uint32_t b[4];

		ldmatrix_x4_trans(b, from + d * 8);
		mma_halves(&state[d], x, b);
	}
}

/* Numbers of the value tile's columns of a warp, transposed: operand a of tokens 16 block and on. */
static __device__ __forceinline__ void walk_values(
        uint32_t (&a)[4], const walk_shared &s, int block, int warp, int lane)
{
	ldmatrix_x4_trans(a, s.value + block * 16 * CHUNK_PITCH + warp * 16 + lane_across(CHUNK_PITCH, lane));
}

/* Puts x^T as bf16 into a warp's columns of the value tile, which no other warp reads, and stores them. */
static __device__ __forceinline__ void walk_store(bf16 *to, int64_t stride, const float (&x)[CHUNK / 8][4],
        const walk_shared &s, int count, int64_t cols, bool aligned, int warp, int lane)
{
	bf16 *tile = s.value + warp * 16;

	__syncwarp(); /* the tile was read */
#pragma unroll
	for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
		for (int c = 0; c < 4; c++)
			tile[(n * 8 + lane % 4 * 2 + c % 2) * CHUNK_PITCH + lane / 4 + c / 2 * 8] =
			        from_float<bf16>(x[n][c]);
	__syncwarp();
	for (int row = lane / 2; row < count; row += WARP / 2) {
		const int column = lane % 2 * 8;
		const int there = (int)min(max(cols - warp * 16 - column, (int64_t)0), (int64_t)8);
		const vec<bf16, 8> part = *(const vec<bf16, 8> *)(tile + row * CHUNK_PITCH + column);
		bf16 *at = to + row * stride + warp * 16 + column;

		if (aligned && there == 8)
			*(vec<bf16, 8> *)at = part;
		else
			for (int i = 0; i < 8; i++)
				if (i < there)
					at[i] = part.at[i];
	}
}

/* Stores x [16 columns][count tokens] of a warp in two planes of [dv][count]. */
static __device__ __forceinline__ void walk_keep(
        bf16 *plane, const float (&x)[CHUNK / 8][4], int count, int64_t column, int64_t dv, int lane)
{
#pragma unroll
	for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const int64_t c = column + lane / 4 + half * 8;
			const int token = n * 8 + lane % 4 * 2;
			const halves h = halves_of(x[n][half * 2], x[n][half * 2 + 1]);
			bf16 *high = plane + c * count + token, *low = high + dv * count;

			if (c >= dv || token >= count)
				continue;
			if (count % 2 == 0) {
				*(uint32_t *)high = h.high;
				*(uint32_t *)low = h.low;
				continue;
			}
			high[0] = bf16{(uint16_t)h.high};
			low[0] = bf16{(uint16_t)h.low};
			if (token + 1 < count) {
				high[1] = bf16{(uint16_t)(h.high >> 16)};
				low[1] = bf16{(uint16_t)(h.low >> 16)};
			}
		}
}

/* Stores a warp's 16 rows of S^T in two planes of [dv][dk]. */
template <int D>
static __device__ __forceinline__ void walk_keep_state(
        bf16 *plane, const float (&state)[D / 8][4], int64_t column, int64_t dv, int64_t dk, int lane)
{
#pragma unroll
	for (int d = 0; d < D / 8; d++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const int64_t c = column + lane / 4 + half * 8;
			const int at = d * 8 + lane % 4 * 2;
			const halves h = halves_of(state[d][half * 2], state[d][half * 2 + 1]);

			if (c >= dv || at >= dk)
				continue;
			*(uint32_t *)(plane + c * dk + at) = h.high;
			*(uint32_t *)(plane + (dv + c) * dk + at) = h.low;
		}
}

#endif
