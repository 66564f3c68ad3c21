/* What a chunk's gradient needs of all columns at once: dq, dk and the sums for its gates. All chunks go at
 * the same time, after the walks of cuda_delta_chunk.cu, which left the states and their gradients. */
#include "gpu/delta_local.cuh"

namespace
{

/* Partial sums of the tokens in shared memory, [64] each: over a chunk's rows or columns by parts of the
 * block. */
struct local_parts {
	float *of_row, *of_column, *of_beta; /* F over j [2], F over i [4]; dA Gamma kk over j [2] */
	float *x, *y, *z;                    /* [2]: q X, k Y, k Z */
	float *value, *skip;                 /* [4] */
	float *state;                        /* [LOCAL_WARPS] */
};

__device__ __forceinline__ local_parts parts_at(float *base)
{
	return {base, base + 2 * CHUNK, base + 6 * CHUNK, base + 8 * CHUNK, base + 10 * CHUNK,
	        base + 12 * CHUNK, base + 14 * CHUNK, base + 18 * CHUNK, base + 22 * CHUNK};
}

/* Gamma of a warp's elements, and of each the factors of length. Masks dP and dA. */
template <int NT>
__device__ __forceinline__ void squares_put(
        const local_sums<NT> &sums, const chunk_factors &f, bf16 *squares, float scale, bool is_scan)
{
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int i = warp / 2 * 16 + lane / 4 + half * 8;

#pragma unroll
		for (int n = 0; n < 4; n++) {
			const int j = warp % 2 * (CHUNK / 2) + n * 8 + lane % 4 * 2;
			float m[2], d[2];

#pragma unroll
			for (int c = 0; c < 2; c++) {
				const float gamma = exp2_fast(f.b2[i] - f.b2[j + c]) * f.k_unit[j + c];

				m[c] = j + c <= i ? sums.dp[n][half * 2 + c] * gamma * f.q_unit[i] * scale
				                  : 0.0f;
				d[c] = j + c < i && !is_scan
				               ? -sums.da[n][half * 2 + c] * gamma * f.beta[i] * f.k_unit[i]
				               : 0.0f;
			}
			halves_put(squares, squares + CHUNK * CHUNK_PITCH, i * CHUNK_PITCH + j, m[0], m[1]);
			halves_put(squares + 2 * CHUNK * CHUNK_PITCH, squares + 3 * CHUNK * CHUNK_PITCH,
			        i * CHUNK_PITCH + j, d[0], d[1]);
		}
	}
}

/* The sums of F = dP P + dA A and of dA Gamma kk that the gates need. */
template <int NT>
__device__ __forceinline__ void within_sums(const local_sums<NT> &sums, const chunk_factors &f,
        const local_parts &parts, float scale, bool is_scan)
{
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	float column[4][2] = {};

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int i = warp / 2 * 16 + lane / 4 + half * 8;
		float row = 0.0f, of_beta = 0.0f;

#pragma unroll
		for (int n = 0; n < 4; n++)
#pragma unroll
			for (int c = 0; c < 2; c++) {
				const int j = warp % 2 * (CHUNK / 2) + n * 8 + lane % 4 * 2 + c,
				          e = half * 2 + c;
				const float gamma = exp2_fast(f.b2[i] - f.b2[j]) * f.k_unit[j];
				const float d = -sums.da[n][e] * gamma * sums.kk[n][e] * f.k_unit[i];
				float all =
				        j <= i ? sums.dp[n][e] * sums.qk[n][e] * gamma * f.q_unit[i] * scale
				               : 0.0f;

				if (j < i && !is_scan) {
					of_beta += d;
					all = fmaf(d, f.beta[i], all);
				}
				row += all;
				column[n][c] += all;
			}
		for (int away = 1; away < 4; away *= 2) {
			row += __shfl_xor_sync(0xffffffffu, row, away);
			of_beta += __shfl_xor_sync(0xffffffffu, of_beta, away);
		}
		if (lane % 4 == 0) {
			parts.of_row[warp % 2 * CHUNK + i] = row;
			parts.of_beta[warp % 2 * CHUNK + i] = of_beta;
		}
	}
#pragma unroll
	for (int n = 0; n < 4; n++)
#pragma unroll
		for (int c = 0; c < 2; c++) {
			for (int away = 4; away < WARP; away *= 2)
				column[n][c] += __shfl_xor_sync(0xffffffffu, column[n][c], away);
			if (lane < 4)
				parts.of_column[warp / 2 * CHUNK + warp % 2 * (CHUNK / 2) + n * 8 + lane * 2 +
				                c] = column[n][c];
		}
}

/* Adds the dot products of a warp's rows of x, y, z with q or k of this half. */
template <int D>
__device__ __forceinline__ void key_dots(const local_sums<local_tiles<D>::NT> &sums, const bf16 *q,
        const bf16 *k, const local_parts &parts, bool is_first_half)
{
	using tiles = local_tiles<D>;
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int i = warp / 2 * 16 + lane / 4 + half * 8, to = warp % 2 * CHUNK + i;
		float dots[3] = {};

#pragma unroll
		for (int n = 0; n < tiles::NT; n++) {
			const int at = i * tiles::P + warp % 2 * (tiles::DH / 2) + n * 8 + lane % 4 * 2;

#pragma unroll
			for (int c = 0; c < 2; c++) {
				const float of_k = to_float(k[at + c]);

				dots[0] = fmaf(sums.x[n][half * 2 + c], to_float(q[at + c]), dots[0]);
				dots[1] = fmaf(sums.y[n][half * 2 + c], of_k, dots[1]);
				dots[2] = fmaf(sums.z[n][half * 2 + c], of_k, dots[2]);
			}
		}
#pragma unroll
		for (int d = 0; d < 3; d++) {
			float *place = (d == 0 ? parts.x : d == 1 ? parts.y : parts.z) + to;

			for (int away = 1; away < 4; away *= 2)
				dots[d] += __shfl_xor_sync(0xffffffffu, dots[d], away);
			if (lane % 4 == 0)
				*place = is_first_half ? dots[d] : *place + dots[d];
		}
	}
}

/* dq and dk of this half, in the place of x and y: the states' part, scaled, then that of the chunk. */
template <int D>
__device__ __forceinline__ void keys_grad(local_sums<local_tiles<D>::NT> &sums, const chunk_factors &f,
        const bf16 *squares, const bf16 *q, const bf16 *k, bool is_scan)
{
	using tiles = local_tiles<D>;
	constexpr int ONE = CHUNK * CHUNK_PITCH;
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, row = warp / 2 * 16;
	const int across = row + lane_across(CHUNK_PITCH, lane),
	          down = row * CHUNK_PITCH + lane_down(CHUNK_PITCH, lane);

#pragma unroll
	for (int n = 0; n < tiles::NT; n++)
#pragma unroll
		for (int c = 0; c < 4; c++) {
			const int i = row + lane / 4 + c / 2 * 8;

			sums.x[n][c] *= f.out[i];
			sums.y[n][c] =
			        (f.rest[i] * sums.y[n][c] - f.beta[i] * f.e[i] * sums.z[n][c]) * f.k_unit[i];
		}
#pragma unroll 1
	for (int j = 0; j < CHUNK; j += 16) {
		const int at = j * tiles::P + warp % 2 * (tiles::DH / 2) + lane_down(tiles::P, lane);
		operand m, m_turned, d, d_turned;

		ldmatrix_x4(m.high, squares + down + j);
		ldmatrix_x4(m.low, squares + ONE + down + j);
		ldmatrix_x4_trans(m_turned.high, squares + across + j * CHUNK_PITCH);
		ldmatrix_x4_trans(m_turned.low, squares + ONE + across + j * CHUNK_PITCH);
		if (!is_scan) {
			ldmatrix_x4(d.high, squares + 2 * ONE + down + j);
			ldmatrix_x4(d.low, squares + 3 * ONE + down + j);
			ldmatrix_x4_trans(d_turned.high, squares + 2 * ONE + across + j * CHUNK_PITCH);
			ldmatrix_x4_trans(d_turned.low, squares + 3 * ONE + across + j * CHUNK_PITCH);
		}
#pragma unroll
		for (int n = 0; n < tiles::NT; n += 2) {
			uint32_t of_q[4], of_k[4];

			ldmatrix_x4_trans(of_q, q + at + n * 8);
			ldmatrix_x4_trans(of_k, k + at + n * 8);
			mma_halves(&sums.x[n], m, of_k);
			mma_halves(&sums.y[n], m_turned, of_q);
			if (!is_scan) {
				mma_halves(&sums.y[n], d, of_k);
				mma_halves(&sums.y[n], d_turned, of_k);
			}
		}
	}
}

/* dq and dk to the rows of the tokens. */
template <int D>
__device__ __forceinline__ void keys_store(const local_sums<local_tiles<D>::NT> &sums, const chunk_factors &f,
        const chunk_room &room, const local_chunk &c, int64_t dk, int d0)
{
	using tiles = local_tiles<D>;
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int i = warp / 2 * 16 + lane / 4 + half * 8;
		const float q_length = 1.0f / f.q_unit[i], k_length = 1.0f / f.k_unit[i];
		float *row = chunk_keys(room, c.head, c.first + min(i, c.count - 1));

#pragma unroll
		for (int n = 0; n < tiles::NT; n++) {
			const int d = d0 + warp % 2 * (tiles::DH / 2) + n * 8 + lane % 4 * 2;

			if (i >= c.count || d >= dk)
				continue;
			*(vec<float, 2> *)(row + d) = {
			        sums.x[n][half * 2] * q_length, sums.x[n][half * 2 + 1] * q_length};
			*(vec<float, 2> *)(row + dk + d) = {
			        sums.y[n][half * 2] * k_length, sums.y[n][half * 2 + 1] * k_length};
		}
	}
}

/* One warp: the gradients of g and beta of the chunk's tokens. */
__device__ __forceinline__ void gates_store(
        const chunk_factors &f, const local_parts &parts, const chunk_room &room, const local_chunk &c)
{
	const int lane = (int)threadIdx.x % WARP;
	float db[2], last = 0.0f, carry = 0.0f;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		const int i = half * WARP + lane;
		const float ky = (parts.y[i] + parts.y[CHUNK + i]) * f.k_unit[i] * f.rest[i];
		const float kz = (parts.z[i] + parts.z[CHUNK + i]) * f.k_unit[i] * f.e[i];
		const float qx = (parts.x[i] + parts.x[CHUNK + i]) * f.out[i];
		float f_sum = parts.of_row[i] + parts.of_row[CHUNK + i], value = 0.0f, skip = 0.0f;

#pragma unroll
		for (int part = 0; part < 4; part++) {
			f_sum -= parts.of_column[part * CHUNK + i];
			value += parts.value[part * CHUNK + i];
			skip += parts.skip[part * CHUNK + i];
		}
		db[half] = f_sum + qx - f.beta[i] * kz - ky;
		last += ky;
		if (i >= c.count)
			continue;
		chunk_stats(room, c.head, STAT_DBETA)[c.first + i] =
		        parts.of_beta[i] + parts.of_beta[CHUNK + i] + value - kz;
		chunk_stats(room, c.head, STAT_DSKIP)[c.first + i] = skip;
	}
	last = warp_sum(last);
	for (int w = 0; w < LOCAL_WARPS; w++)
		carry += parts.state[w];
	carry = fmaf(carry, *f.total, last);
#pragma unroll
	for (int half = 1; half >= 0; half--) {
		const int i = half * WARP + lane;

		for (int away = 1; away < WARP; away *= 2) {
			const float more = __shfl_down_sync(0xffffffffu, db[half], away);

			if (lane + away < WARP)
				db[half] += more;
		}
		db[half] += carry;
		carry = __shfl_sync(0xffffffffu, db[half], 0);
		if (i < c.count)
			chunk_stats(room, c.head, STAT_DG)[c.first + i] = db[half];
	}
}

/* The factors of a chunk's tokens; ends with a barrier. */
__device__ __forceinline__ void factors_prepare(
        const chunk_factors &f, const delta_args<bf16> &p, const local_chunk &c, bool aligned)
{
	const int row = (int)threadIdx.x % CHUNK, side = (int)threadIdx.x / CHUNK;
	const int64_t at = (c.first + min(row, c.count - 1)) * p.qkv_stride +
	                   c.head / (p.value_heads / p.key_heads) * p.dk;

	if (side < 2) {
		const bf16 *x = (side ? p.q : p.k) + at;
		float square = 0.0f;

		if (aligned)
			square = chunk_square(x, p.dk);
		else
			for (int64_t d = 0; d < p.dk; d++)
				square = fmaf(to_float(x[d]), to_float(x[d]), square);
		(side ? f.q_unit : f.k_unit)[row] = p.is_scan ? 1.0f : 1.0f / sqrtf(square + p.epsilon);
	}
	if (threadIdx.x / WARP == LOCAL_WARPS - 1)
		chunk_gates(f, p, c.head, c.first, c.count);
	__syncthreads();
	chunk_factors_join(f, p.scale);
	__syncthreads();
}

/* What follows the columns: sums of threads, and the gates. */
template <int NT>
__device__ __forceinline__ void gates_sums(const local_sums<NT> &sums, const chunk_factors &f,
        const local_parts &parts, const delta_args<bf16> &p, const chunk_room &room, const local_chunk &c)
{
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	const float state = warp_sum(sums.state);

	parts.value[threadIdx.x] = sums.value;
	parts.skip[threadIdx.x] = sums.skip;
	if (lane == 0)
		parts.state[warp] = state;
	within_sums(sums, f, parts, p.scale, p.is_scan);
	__syncthreads(); /* all parts are there */
	if (warp == 0)
		gates_store(f, parts, room, c);
}

template <int D>
__device__ __forceinline__ void chunk_local(bf16 *memory, const delta_args<bf16> &p, const local_inputs &in,
        const chunk_room &room, const local_chunk &c)
{
	using tiles = local_tiles<D>;
	bf16 *k = memory, *q = k + CHUNK * tiles::P, *stages = q + CHUNK * tiles::P;
	const int elements = (tiles::bytes(in.stages) - tiles::FLOATS * 4) / 2;
	const chunk_factors f = chunk_factors_at((float *)(memory + elements));
	const local_parts parts = parts_at((float *)(memory + elements) + FACTOR_FLOATS);
	const int64_t at = c.first * p.qkv_stride + c.head / (p.value_heads / p.key_heads) * p.dk;
	local_sums<tiles::NT> sums;

	clear(sums.dp);
	clear(sums.da);
	clear(sums.kk);
	clear(sums.qk);
	sums.value = sums.skip = sums.state = 0.0f;
	for (int d0 = 0; d0 < p.dk; d0 += tiles::DH) {
		int stage = 0;

		chunk_load<CHUNK, tiles::DH, LOCAL_THREADS>(
		        k, tiles::P, p.k + at + d0, p.qkv_stride, c.count, p.dk - d0, in.aligned);
		chunk_load<CHUNK, tiles::DH, LOCAL_THREADS>(
		        q, tiles::P, p.q + at + d0, p.qkv_stride, c.count, p.dk - d0, in.aligned);
		stage_load<D>(stage_at<D>(stages, 0), p, in, room, c, 0, d0);
		cp_async_commit();
		if (d0 == 0)
			factors_prepare(f, p, c, in.aligned);
		clear(sums.x);
		clear(sums.y);
		clear(sums.z);
		for (int64_t column = 0; column < p.dv; column += SLAB) {
			const bool has_next = column + SLAB < p.dv;

			cp_async_wait<0>();
			__syncthreads(); /* this slab is there, the other stage is free */
			if (in.stages == 2 && has_next)
				stage_load<D>(
				        stage_at<D>(stages, stage ^ 1), p, in, room, c, column + SLAB, d0);
			cp_async_commit();
			slab_sums<D>(sums, stage_at<D>(stages, stage), c, p.is_scan, d0 == 0);
			if (in.stages == 2) {
				stage ^= 1;
				continue;
			}
			__syncthreads(); /* the slab is free */
			if (has_next)
				stage_load<D>(stage_at<D>(stages, 0), p, in, room, c, column + SLAB, d0);
			cp_async_commit();
		}
		key_products<D>(sums, q, k);
		key_dots<D>(sums, q, k, parts, d0 == 0);
		__syncthreads(); /* slabs are free */
		squares_put(sums, f, stages, p.scale, p.is_scan);
		__syncthreads(); /* squares are there */
		keys_grad<D>(sums, f, stages, q, k, p.is_scan);
		keys_store<D>(sums, f, room, c, p.dk, d0);
		__syncthreads(); /* tiles are free */
	}
	gates_sums(sums, f, parts, p, room, c);
	__syncthreads(); /* factors and parts are free */
}

/* A block has the chunks that begin in 64 tokens. */
template <int D>
__global__ void __launch_bounds__(LOCAL_THREADS, 1)
        delta_local_kernel(const delta_args<bf16> p, const local_inputs in, const chunk_room room)
{
	SHARED_DYNAMIC(bf16, memory);
	const int t0 = (int)blockIdx.x * CHUNK, tokens = (int)p.tokens, lane = (int)threadIdx.x % WARP;

	for (int from = t0; from < min(t0 + (int)CHUNK, tokens); from += WARP) {
		const int t = from + lane;
		uint32_t begins = __ballot_sync(
		        0xffffffffu, t < tokens && (t - p.doc_start[min(t, tokens - 1)]) % CHUNK == 0);

		for (; begins; begins &= begins - 1) {
			local_chunk c = {blockIdx.y, from + __ffs((int)begins) - 1, 0, 0, 0};
			int end;

			c.start = p.doc_start[c.first];
			end = c.first + CHUNK;
			c.is_last = end >= tokens || p.doc_start[end] != c.start;
			c.count = c.is_last ? document_find(
			                              p.doc_start, c.first, min(end, tokens), c.start + 1) -
			                              c.first
			                    : (int)CHUNK;
			chunk_local<D>(memory, p, in, room, c);
		}
	}
}

template <int D> int local_start(const struct cuda_launch *at, const struct op_delta_grad *o)
{
	using tiles = local_tiles<D>;
	const bool aligned = o->qkv_stride % 8 == 0 && o->out_stride % 8 == 0 && o->q.value % 16 == 0 &&
	                     o->k.value % 16 == 0 && o->v.value % 16 == 0 && o->dout.value % 16 == 0;
	const int stages = tiles::bytes(2) <= at->shared_bytes_max ? 2 : 1;
	const local_inputs in = {dev_ptr<const bf16>(o->dout), o->out_stride, stages, aligned};

	return cuda_start(at, "delta_grad", delta_local_kernel<D>,
	        dim3((unsigned)ceil_div(o->tokens, CHUNK), (unsigned)o->value_heads), LOCAL_THREADS,
	        tiles::bytes(stages), delta_args_of<bf16>(o), in, chunk_room_of(o));
}

} // namespace

int delta_grad_local(const struct cuda_launch *at, const struct op_delta_grad *o, int width)
{
	if (width == 64)
		return local_start<64>(at, o);
	return width == 128 ? local_start<128>(at, o) : local_start<256>(at, o);
}
