/* Products of FP8 on tensor cores. Codes become bf16, which has their values exactly, so every GPU of ferry
 * computes them; sums of a block of k are fp32, and so are their scaled sums. */
#include "gpu/coded.cuh"
#include "gpu/product_mma.cuh"

OP_CODED_LIST(CUDA_DECLARE)

namespace
{

/* A tile has the columns of one block of b. The next codes are under way in registers and become bf16 in
 * shared memory. An element's sum does not depend on the grid. */
enum { EACH = SIDE * DEPTH / THREADS /* codes of a thread, side by side */ };
static_assert((int)SIDE == (int)CODE_BLOCK && EACH == 16, "a tile has one scale of b for each block of k");

/* Codes of an operand. Elements beyond outer or k count as 0. */
struct side {
	const uint8_t *x;
	int64_t outer, stride;
	int is_wide; /* EACH codes are one access */
};

/* Codes of [outer0, outer0 + SIDE) x [k0, k0 + DEPTH) that this thread brings: before k_end alone. */
template <int TURNED>
__device__ __forceinline__ void codes_load(vec<uint8_t, EACH> &codes, const side &s, int64_t outer0,
        int64_t outer_end, int64_t k0, int64_t k_end)
{
	enum { CHUNKS = (TURNED ? SIDE : DEPTH) / EACH };
	const int row = (int)threadIdx.x / CHUNKS, col = (int)threadIdx.x % CHUNKS * EACH;
	const int64_t outer = outer0 + (TURNED ? col : row), k = k0 + (TURNED ? row : col);
	const uint8_t *from = s.x + (TURNED ? k * s.stride + outer : outer * s.stride + k);
	const int64_t left =
	        TURNED ? (k < k_end ? outer_end - outer : 0) : (outer < outer_end ? k_end - k : 0);

	if (s.is_wide && left >= EACH) {
		codes = *(const vec<uint8_t, EACH> *)from;
		return;
	}
#pragma unroll
	for (int i = 0; i < EACH; i++)
		codes.at[i] = i < left ? from[i] : 0;
}

template <int TURNED>
__device__ __forceinline__ void codes_store(bf16 *panel, const vec<uint8_t, EACH> &codes)
{
	enum { CHUNKS = (TURNED ? SIDE : DEPTH) / EACH };
	const int row = (int)threadIdx.x / CHUNKS, col = (int)threadIdx.x % CHUNKS * EACH;
	vec<uint32_t, 4> *to = (vec<uint32_t, 4> *)(panel + row * (TURNED ? PITCH_TURNED : PITCH) + col);

#pragma unroll
	for (int i = 0; i < EACH / 8; i++) {
		vec<uint32_t, 4> pairs;

#pragma unroll
		for (int j = 0; j < 4; j++)
			pairs.at[j] = e4m3_bf16(codes.at[i * 8 + j * 2]) |
			              e4m3_bf16(codes.at[i * 8 + j * 2 + 1]) << 16;
		to[i] = pairs;
	}
}

/* A part of k within one block: [k0, k0 + DEPTH) before end. */
struct part {
	int64_t block, k0, end;
};

struct sizes {
	int64_t m, n, k, c_stride, lead_k, lead_n, blocks_k, columns, across;
	int accumulate;
};

__device__ __forceinline__ part part_first(const sizes &o)
{
	const int64_t end = CODE_BLOCK - o.lead_k;

	return {0, 0, end < o.k ? end : o.k};
}

__device__ __forceinline__ part part_next(part p, const sizes &o)
{
	p.k0 += DEPTH;
	if (p.k0 < p.end)
		return p;
	p.block++;
	p.k0 = p.end;
	p.end = p.end + CODE_BLOCK < o.k ? p.end + CODE_BLOCK : o.k;
	return p;
}

template <class C, class B>
__device__ __forceinline__ void element_store(
        C *c, const B *bias, const sizes &o, int64_t row, int64_t col, int64_t col_end, float sum)
{
	if (row >= o.m || col >= col_end)
		return;
	C *at = c + row * o.c_stride + col;

	if (bias)
		sum = __fadd_rn(sum, to_float(bias[col]));
	if (o.accumulate)
		sum = __fadd_rn(sum, to_float(*at));
	*at = from_float<C>(sum);
}

/* sum += part * (scale of the row * scale of b), and part = 0 */
__device__ __forceinline__ void block_add(float sum[4], float part[4], float upper, float lower, float scale)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		sum[i] = __fadd_rn(sum[i], __fmul_rn(part[i], __fmul_rn(i < 2 ? upper : lower, scale)));
		part[i] = 0;
	}
}

template <int B_TURNED, class C, class B>
__global__ void __launch_bounds__(THREADS) product_kernel(
        C *c, const float *a_scales, const float *b_scales, const B *bias, side a, side b, sizes o)
{
	SHARED(bf16, shared, 2 * 2 * PANEL);
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	const int row = warp % 4 * 32, column = warp / 4 * 64;
	const int64_t tile = blockIdx.x % o.columns, row0 = blockIdx.x / o.columns * SIDE;
	const int64_t begin = tile * CODE_BLOCK - o.lead_n, column0 = begin < 0 ? 0 : begin;
	const int64_t column_end = begin + CODE_BLOCK < o.n ? begin + CODE_BLOCK : o.n;
	float sums[2][8][4] = {}, parts[2][8][4] = {};
	vec<uint8_t, EACH> next_a, next_b;
	part here = part_first(o);

	codes_load<0>(next_a, a, row0, o.m, here.k0, here.end);
	codes_load<B_TURNED>(next_b, b, column0, column_end, here.k0, here.end);
	for (int stage = 0; here.k0 < o.k; stage ^= 1) {
		const part after = part_next(here, o);
		bf16 *panel = shared + stage * 2 * PANEL;

		codes_store<0>(panel, next_a);
		codes_store<B_TURNED>(panel + PANEL, next_b);
		__syncthreads(); /* the part is there, and the one before the last is used up */
		if (after.k0 < o.k) {
			codes_load<0>(next_a, a, row0, o.m, after.k0, after.end);
			codes_load<B_TURNED>(next_b, b, column0, column_end, after.k0, after.end);
		}
		panels_add<0, B_TURNED>(parts, panel, panel + PANEL, row, column);
		if (after.block != here.block || after.k0 >= o.k) {
			const float scale = b_scales[B_TURNED ? here.block * o.across + tile
			                                      : tile * o.across + here.block];

#pragma unroll
			for (int m = 0; m < 2; m++) {
				const int64_t r = row0 + row + m * 16 + lane / 4;
				const float upper = r < o.m ? a_scales[r * o.blocks_k + here.block] : 0,
				            lower = r + 8 < o.m ? a_scales[(r + 8) * o.blocks_k + here.block]
				                                : 0;

#pragma unroll
				for (int n = 0; n < 8; n++)
					block_add(sums[m][n], parts[m][n], upper, lower, scale);
			}
		}
		here = after;
	}
#pragma unroll
	for (int m = 0; m < 2; m++)
#pragma unroll
		for (int n = 0; n < 8; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				element_store(c, bias, o, row0 + row + m * 16 + lane / 4 + i / 2 * 8,
				        column0 + column + n * 8 + lane % 4 * 2 + i % 2, column_end,
				        sums[m][n][i]);
}

template <int B_TURNED, class C, class B>
int product_start(const struct cuda_launch *at, const struct op_coded_matmul *o)
{
	const side a = {dev_ptr<const uint8_t>(o->a), o->m, o->k,
	        o->k % EACH == 0 && o->b_lead * B_TURNED % EACH == 0 &&
	                is_aligned(dev_ptr<void>(o->a), EACH)};
	const int64_t stride = B_TURNED ? o->n : o->k, lead = o->b_lead;
	const side b = {dev_ptr<const uint8_t>(o->b), o->n, stride,
	        stride % EACH == 0 && is_aligned(dev_ptr<void>(o->b), EACH)};
	sizes s = {o->m, o->n, o->k, o->c_stride, B_TURNED ? lead : 0, B_TURNED ? 0 : lead, 0, 0, 0,
	        o->accumulate};

	s.blocks_k = coded_blocks(s.lead_k, o->k);
	s.columns = coded_blocks(s.lead_n, o->n);
	s.across = B_TURNED ? s.columns : s.blocks_k;
	return cuda_start(at, "coded_matmul", product_kernel<B_TURNED, C, B>,
	        dim3((unsigned)(ceil_div(o->m, SIDE) * s.columns)), THREADS, 0, dev_ptr<C>(o->c),
	        dev_ptr<const float>(o->a_scales), dev_ptr<const float>(o->b_scales),
	        dev_ptr<const B>(o->bias), a, b, s);
}

template <int B_TURNED, class C> int product_of(const struct cuda_launch *at, const struct op_coded_matmul *o)
{
	return o->bias_dtype == DTYPE_F32 ? product_start<B_TURNED, C, float>(at, o)
	                                  : product_start<B_TURNED, C, bf16>(at, o);
}

} // namespace

extern "C" int cuda_coded_matmul(const struct cuda_launch *at, const struct op_coded_matmul *o)
{
	if (o->b_layout == MATMUL_NORMAL)
		return o->c_dtype == DTYPE_F32 ? product_of<1, float>(at, o) : product_of<1, bf16>(at, o);
	return o->c_dtype == DTYPE_F32 ? product_of<0, float>(at, o) : product_of<0, bf16>(at, o);
}
