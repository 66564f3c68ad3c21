/* Products of rows with the matrices of their experts on tensor cores, of bf16 with fp32 sums. */
#include "gpu/grouped.cuh"
#include "gpu/product_mma.cuh"

namespace
{

/* Copies of the next STAGES - 1 pieces of k are under way. The sum of an element is over k in ascending
 * order, whatever the grid. */
enum { STAGES = 3, SHARED_BYTES = STAGES * 2 * PANEL * (int)sizeof(bf16) };

/* An operand from its first element on. Elements beyond outer or k count as 0. */
struct side {
	const bf16 *x;
	int64_t outer, k, stride;
};

/* Starts the copy of [outer0, outer0 + SIDE) x [k0, k0 + DEPTH). */
template <int TURNED>
__device__ __forceinline__ void panel_load(bf16 *panel, const side &s, int64_t outer0, int64_t k0)
{
	enum { CHUNKS = (TURNED ? SIDE : DEPTH) / 8 };

#pragma unroll
	for (int i = 0; i < SIDE * DEPTH / 8 / THREADS; i++) {
		const int at = i * THREADS + (int)threadIdx.x, row = at / CHUNKS, col = at % CHUNKS * 8;
		const int64_t outer = outer0 + (TURNED ? col : row), k = k0 + (TURNED ? row : col);
		const int is_inside = outer < s.outer && k < s.k;
		const bf16 *from = s.x + (TURNED ? k * s.stride + outer : outer * s.stride + k);

		cp_async_16(panel + row * (TURNED ? PITCH_TURNED : PITCH) + col, is_inside ? from : s.x,
		        is_inside ? 16 : 0);
	}
}

/* What c and its bias are, from the expert's first element on. */
template <class C> struct target {
	C *c;
	const bf16 *bias; /* or NULL */
	int64_t m, n;     /* n is the stride too */
	int accumulate;
};

/* Two neighbouring elements of c; n is a multiple of 8. */
template <class C>
__device__ __forceinline__ void pair_store(const target<C> &to, int64_t row, int64_t col, float x, float y)
{
	vec<C, 2> *at = (vec<C, 2> *)(to.c + row * to.n + col), pair;

	if (row >= to.m || col >= to.n)
		return;
	if (to.bias) {
		x += to_float(to.bias[col]);
		y += to_float(to.bias[col + 1]);
	}
	if (to.accumulate) {
		pair = *at;
		x += to_float(pair.at[0]);
		y += to_float(pair.at[1]);
	}
	pair.at[0] = from_float<C>(x);
	pair.at[1] = from_float<C>(y);
	*at = pair;
}

template <int A_TURNED, int B_TURNED, class C>
__device__ __forceinline__ void tile_product(
        bf16 *shared, const target<C> &to, const side &a, const side &b, int64_t row0, int64_t column0)
{
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	const int row = warp % 4 * 32, column = warp / 4 * 64;
	const int64_t pieces = (a.k + DEPTH - 1) / DEPTH;
	float sums[2][8][4] = {};

#pragma unroll
	for (int s = 0; s < STAGES - 1; s++) {
		if (s < pieces) {
			panel_load<A_TURNED>(shared + s * 2 * PANEL, a, row0, s * DEPTH);
			panel_load<B_TURNED>(shared + (s * 2 + 1) * PANEL, b, column0, s * DEPTH);
		}
		cp_async_commit();
	}
	for (int64_t p = 0; p < pieces; p++) {
		const bf16 *here = shared + p % STAGES * 2 * PANEL;
		const int64_t next = p + STAGES - 1;

		cp_async_wait<STAGES - 2>();
		__syncthreads(); /* piece p is there, and piece p - 1 is used up */
		if (next < pieces) {
			bf16 *there = shared + next % STAGES * 2 * PANEL;

			panel_load<A_TURNED>(there, a, row0, next * DEPTH);
			panel_load<B_TURNED>(there + PANEL, b, column0, next * DEPTH);
		}
		cp_async_commit();
		panels_add<A_TURNED, B_TURNED>(sums, here, here + PANEL, row, column);
	}
#pragma unroll
	for (int m = 0; m < 2; m++)
#pragma unroll
		for (int n = 0; n < 8; n++) {
			const int64_t r = row0 + row + m * 16 + lane / 4,
			              c = column0 + column + n * 8 + lane % 4 * 2;

			pair_store(to, r, c, sums[m][n][0], sums[m][n][1]);
			pair_store(to, r + 8, c, sums[m][n][2], sums[m][n][3]);
		}
}

template <int B_TURNED, class C>
__global__ void __launch_bounds__(THREADS) rows_kernel(
        C *c, const bf16 *a, const bf16 *b, const bf16 *bias, const int32_t *first, grouped_sizes o)
{
	SHARED_DYNAMIC(bf16, shared);
	const int64_t tiles_n = (o.n + SIDE - 1) / SIDE;
	int64_t e, row0;

	if (!tile_find(&e, &row0, first, o.experts, blockIdx.x / tiles_n, SIDE))
		return;
	const int64_t count = first[e + 1] - first[e];
	const target<C> to = {c + first[e] * o.n, bias ? bias + e * o.n : bias, count, o.n, o.accumulate};
	const side of_a = {a + first[e] * o.k, count, o.k, o.k},
	           of_b = {b + e * o.n * o.k, o.n, o.k, B_TURNED ? o.n : o.k};

	tile_product<0, B_TURNED>(shared, to, of_a, of_b, row0, blockIdx.x % tiles_n * SIDE);
}

template <class C>
__global__ void __launch_bounds__(THREADS)
        weights_kernel(C *c, const bf16 *a, const bf16 *b, const int32_t *first, grouped_sizes o)
{
	SHARED_DYNAMIC(bf16, shared);
	const int64_t tiles_n = (o.n + SIDE - 1) / SIDE, tiles = (o.m + SIDE - 1) / SIDE * tiles_n,
	              e = blockIdx.x / tiles, tile = blockIdx.x % tiles, count = first[e + 1] - first[e];
	const target<C> to = {c + e * o.m * o.n, (const bf16 *)0, o.m, o.n, o.accumulate};
	const side of_a = {a + first[e] * o.m, o.m, count, o.m}, of_b = {b + first[e] * o.n, o.n, count, o.n};

	if (o.accumulate && !count)
		return;
	tile_product<1, 1>(shared, to, of_a, of_b, tile / tiles_n * SIDE, tile % tiles_n * SIDE);
}

int64_t tiles_of(const struct op_grouped *o)
{
	return ceil_div(o->n, SIDE) * (o->of == GROUPED_ROWS ? ceil_div(o->rows, SIDE) + o->experts
	                                                     : o->experts * ceil_div(o->m, SIDE));
}

template <class C> int mma_start(const struct cuda_launch *at, const struct op_grouped *o)
{
	const grouped_sizes sizes = {o->experts, o->m, o->n, o->k, o->accumulate};
	const dim3 grid((unsigned)tiles_of(o));
	C *c = dev_ptr<C>(o->c);
	const bf16 *a = dev_ptr<const bf16>(o->a), *b = dev_ptr<const bf16>(o->b);
	const int32_t *first = dev_ptr<const int32_t>(o->first);

	if (o->of == GROUPED_WEIGHTS)
		return cuda_start(
		        at, "grouped", weights_kernel<C>, grid, THREADS, SHARED_BYTES, c, a, b, first, sizes);
	return cuda_start(at, "grouped",
	        o->b_layout == MATMUL_TRANSPOSED ? rows_kernel<0, C> : rows_kernel<1, C>, grid, THREADS,
	        SHARED_BYTES, c, a, b, dev_ptr<const bf16>(o->bias), first, sizes);
}

} // namespace

int grouped_mma_fits(const struct cuda_launch *at, const struct op_grouped *o)
{
	return o->ab_dtype == DTYPE_BF16 && o->n % 8 == 0 && (o->of == GROUPED_ROWS ? o->k : o->m) % 8 == 0 &&
	       is_aligned(dev_ptr<void>(o->a), 16) && is_aligned(dev_ptr<void>(o->b), 16) &&
	       is_aligned(dev_ptr<void>(o->c), 16) && SHARED_BYTES <= at->shared_bytes_max &&
	       tiles_of(o) <= INT32_MAX;
}

int grouped_mma_start(const struct cuda_launch *at, const struct op_grouped *o)
{
	return o->c_dtype == DTYPE_F32 ? mma_start<float>(at, o) : mma_start<bf16>(at, o);
}
