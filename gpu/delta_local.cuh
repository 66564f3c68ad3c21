/* The part of the local pass over chunks (cuda_delta_local.cu) that sums over the columns of the states: its
 * tiles in shared memory, and the sums in registers. */
#ifndef FERRY_GPU_DELTA_LOCAL_CUH
#define FERRY_GPU_DELTA_LOCAL_CUH

#include "gpu/delta_chunk.cuh"

/* A block has 8 warps: warp w has tokens 16 (w / 2) and on; of their sums over the columns of the state, the
 * columns of half w % 2. Columns pass SLAB at a time. The sums, with S the state before the chunk and dS
 * after:
 *
 *     X = dO S^T, Y = V' dS^T, Z = r S^T, dP = dO V'^T, dA = -r V'^T
 *
 * Keys wider than 128 pass in two halves, which redo the loads. */
enum { LOCAL_WARPS = 8, LOCAL_THREADS = LOCAL_WARPS * WARP, SLAB = 16, SLAB_PITCH = SLAB + 8 };

template <int D> struct local_tiles {
	static constexpr int DH = D < DELTA_KEYS_AT_ONCE ? D : (int)DELTA_KEYS_AT_ONCE, P = DH + 8,
	                     NT = DH / 16; /* tiles of 8 columns a warp */
	static constexpr int STATE = SLAB * P, TURNED = SLAB * CHUNK_PITCH, VALUE = CHUNK * SLAB_PITCH;
	static constexpr int STAGE = 4 * STATE + 4 * TURNED + 2 * VALUE; /* elements */
	static constexpr int SQUARES = 4 * CHUNK * CHUNK_PITCH;
	static constexpr int FLOATS = FACTOR_FLOATS + 22 * CHUNK + LOCAL_WARPS;

	static __host__ __device__ constexpr int bytes(int stages)
	{
		return (2 * CHUNK * P + (stages * STAGE > SQUARES ? stages * STAGE : SQUARES)) * 2 +
		       FLOATS * 4;
	}
};

/* A stage: S and dS [SLAB][P], V'^T and r^T [SLAB][CHUNK_PITCH], each high and low; dO, v [64][SLAB_PITCH].
 */
template <int D> struct local_stage {
	bf16 *state[4], *turned[4], *dout, *v;
};

template <int D> static __device__ __forceinline__ local_stage<D> stage_at(bf16 *base, int stage)
{
	using tiles = local_tiles<D>;
	local_stage<D> s;

	base += stage * tiles::STAGE;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		s.state[i] = base + i * tiles::STATE;
		s.turned[i] = base + 4 * tiles::STATE + i * tiles::TURNED;
	}
	s.dout = base + 4 * tiles::STATE + 4 * tiles::TURNED;
	s.v = s.dout + tiles::VALUE;
	return s;
}

struct local_inputs {
	const bf16 *dout;
	int64_t out_stride;
	int stages, aligned;
};

/* A chunk of a head. */
struct local_chunk {
	int64_t head;
	int first, count, start, is_last;

	__device__ __forceinline__ bool is_first() const { return first == start; }
};

template <int D>
static __device__ __forceinline__ void stage_load(const local_stage<D> &s, const delta_args<bf16> &p,
        const local_inputs &in, const chunk_room &room, const local_chunk &c, int64_t column, int d0)
{
	using tiles = local_tiles<D>;
	const bf16 *rows = chunk_held(room, c.head, c.first);
	const bf16 *gradient = rows + 4 * CHUNK * p.dv;
	const int64_t left = p.dv - column, at = c.head * p.dv + column;

#pragma unroll
	for (int low = 0; low < 2; low++) {
		const int64_t from = (low * p.dv + column) * p.dk + d0;

		if (!c.is_first())
			chunk_load<SLAB, tiles::DH, LOCAL_THREADS>(s.state[low], tiles::P,
			        chunk_state(room, c.head, c.start, c.first) + from, p.dk, left, p.dk - d0,
			        true);
		if (!c.is_last)
			chunk_load<SLAB, tiles::DH, LOCAL_THREADS>(
			        s.state[2 + low], tiles::P, gradient + from, p.dk, left, p.dk - d0, true);
#pragma unroll
		for (int r = 0; r < 2; r++)
			chunk_load<SLAB, CHUNK, LOCAL_THREADS>(s.turned[2 * r + low], CHUNK_PITCH,
			        rows + ((2 * r + low) * p.dv + column) * c.count, c.count, left, c.count,
			        c.count % 8 == 0);
	}
	chunk_load<CHUNK, SLAB, LOCAL_THREADS>(s.dout, SLAB_PITCH, in.dout + c.first * in.out_stride + at,
	        in.out_stride, c.count, left, in.aligned);
	chunk_load<CHUNK, SLAB, LOCAL_THREADS>(
	        s.v, SLAB_PITCH, p.v + c.first * p.qkv_stride + at, p.qkv_stride, c.count, left, in.aligned);
}

/* A warp's sums. */
template <int NT> struct local_sums {
	float x[NT][4], y[NT][4], z[NT][4], dp[4][4], da[4][4], kk[4][4], qk[4][4];
	float value, skip, state; /* of a thread: r v, dO v, S dS */
};

/* x, y, z over the columns of a slab. */
template <int D>
static __device__ __forceinline__ void slab_states(local_sums<local_tiles<D>::NT> &sums,
        const local_stage<D> &s, const local_chunk &c, bool is_scan, const uint32_t (&dout)[4],
        const operand &fresh, const operand &r, int half, int lane)
{
	using tiles = local_tiles<D>;
	const int at = half * (tiles::DH / 2) + lane_down(tiles::P, lane);

#pragma unroll
	for (int n = 0; n < tiles::NT; n += 2) {
		uint32_t high[4], low[4];

		if (!c.is_first()) {
			ldmatrix_x4_trans(high, s.state[0] + at + n * 8);
			ldmatrix_x4_trans(low, s.state[1] + at + n * 8);
			mma_halves(&sums.x[n], dout, high, low);
			if (!is_scan)
				mma_halves(&sums.z[n], r, high, low);
		}
		if (!c.is_last) {
			ldmatrix_x4_trans(high, s.state[2] + at + n * 8);
			ldmatrix_x4_trans(low, s.state[3] + at + n * 8);
			mma_halves(&sums.y[n], fresh, high, low);
		}
	}
}

/* Sums of single threads, over the columns of a slab; a token has four threads. */
template <int D>
static __device__ __forceinline__ void slab_values(
        local_sums<local_tiles<D>::NT> &sums, const local_stage<D> &s)
{
	const int token = (int)threadIdx.x % CHUNK, column = (int)threadIdx.x / CHUNK * (SLAB / 4);

#pragma unroll
	for (int i = column; i < column + SLAB / 4; i++) {
		const int turned = i * CHUNK_PITCH + token, at = token * SLAB_PITCH + i;
		const float v = to_float(s.v[at]);

		sums.value =
		        fmaf(to_float(s.turned[2][turned]) + to_float(s.turned[3][turned]), v, sums.value);
		sums.skip = fmaf(to_float(s.dout[at]), v, sums.skip);
	}
}

template <int D>
static __device__ __forceinline__ void slab_state_sum(
        local_sums<local_tiles<D>::NT> &sums, const local_stage<D> &s)
{
	using tiles = local_tiles<D>;

	for (int i = (int)threadIdx.x; i < SLAB * tiles::DH; i += LOCAL_THREADS) {
		const int at = i / tiles::DH * tiles::P + i % tiles::DH;

		sums.state = fmaf(to_float(s.state[0][at]) + to_float(s.state[1][at]),
		        to_float(s.state[2][at]) + to_float(s.state[3][at]), sums.state);
	}
}

template <int D>
static __device__ __forceinline__ void slab_sums(local_sums<local_tiles<D>::NT> &sums,
        const local_stage<D> &s, const local_chunk &c, bool is_scan, bool is_first_half)
{
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	const int row = warp / 2 * 16, half = warp % 2;
	const int turned = row + lane_across(CHUNK_PITCH, lane);
	uint32_t dout[4];
	operand fresh, r;

	ldmatrix_x4(dout, s.dout + row * SLAB_PITCH + lane_down(SLAB_PITCH, lane));
	ldmatrix_x4_trans(fresh.high, s.turned[0] + turned);
	ldmatrix_x4_trans(fresh.low, s.turned[1] + turned);
	ldmatrix_x4_trans(r.high, s.turned[2] + turned);
	ldmatrix_x4_trans(r.low, s.turned[3] + turned);
	slab_states<D>(sums, s, c, is_scan, dout, fresh, r, half, lane);
	if (!c.is_first() && !c.is_last)
		slab_state_sum<D>(sums, s);
	if (!is_first_half)
		return;
#pragma unroll
	for (int n = 0; n < 4; n += 2) {
		const int at = half * (CHUNK / 2) + n * 8 + lane_down(CHUNK_PITCH, lane);
		uint32_t high[4], low[4];

		ldmatrix_x4_trans(high, s.turned[0] + at);
		ldmatrix_x4_trans(low, s.turned[1] + at);
		mma_halves(&sums.dp[n], dout, high, low);
		if (!is_scan)
			mma_halves(&sums.da[n], r, high, low);
	}
	slab_values<D>(sums, s);
}

/* K K^T and Q K^T over the keys of this half. */
template <int D>
static __device__ __forceinline__ void key_products(
        local_sums<local_tiles<D>::NT> &sums, const bf16 *q, const bf16 *k)
{
	constexpr int P = local_tiles<D>::P;
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	const int rows = warp / 2 * 16 * P + lane_down(P, lane),
	          columns = warp % 2 * (CHUNK / 2) * P + lane_across(P, lane);

#pragma unroll 2
	for (int d = 0; d < local_tiles<D>::DH; d += 16) {
		uint32_t a[4], b[4], column[4];

		ldmatrix_x4(a, k + rows + d);
		ldmatrix_x4(b, q + rows + d);
#pragma unroll
		for (int n = 0; n < 4; n += 2) {
			ldmatrix_x4(column, k + columns + n * 8 * P + d);
			mma_bf16(sums.kk[n], a, column);
			mma_bf16(sums.kk[n + 1], a, column + 2);
			mma_bf16(sums.qk[n], b, column);
			mma_bf16(sums.qk[n + 1], b, column + 2);
		}
	}
}

#endif
