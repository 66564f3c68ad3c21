/* Matrix products of any shape, stride and alignment, if cuBLASLt is missing or refuses them. */
#include "gpu/cuda_matmul.h"
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_matmul.h"
}

/* A block computes tiles of 64 x 64 of c; each thread has 4 x 4 of them in registers. k passes through shared
 * memory 16 at a time, widened to fp32, in ascending order: one fma chain per element of c, whatever the
 * grid. There are no tensor cores, because the fp32 path needs every bit, and bf16 products are exact in it.
 */
enum { THREADS = 256, TILE = 64, DEPTH = 16, EACH = 4, ROW = TILE + 4 /* skewed against bank conflicts */ };

/* An operand as [outer, k]. outer are the rows of c for a, its columns for b. */
struct side {
	int64_t outer, k, stride;
	int k_is_inner; /* elements along k are contiguous */
};

/* panel[l][i] = x(outer0 + i, k0 + l), 0 beyond the borders. Neighbouring threads read neighbouring elements.
 */
template <class T>
static __device__ __forceinline__ void panel_load(
        float *panel, const T *x, const side &s, int64_t outer0, int64_t k0)
{
	for (int step = 0; step < TILE * DEPTH / THREADS; step++) {
		int at = step * THREADS + (int)threadIdx.x;
		int l = s.k_is_inner ? at % DEPTH : at / TILE, i = s.k_is_inner ? at / DEPTH : at % TILE;
		int64_t outer = outer0 + i, k = k0 + l;
		float value = 0;

		if (outer < s.outer && k < s.k)
			value = to_float(s.k_is_inner ? x[outer * s.stride + k] : x[k * s.stride + outer]);
		panel[l * ROW + i] = value;
	}
}

struct product_out {
	int64_t m, n, stride;
	int accumulate;
};

template <class T, class C>
static __device__ __forceinline__ void tile_store(
        C *c, const T *bias, const product_out &o, int64_t row, int64_t column, const float sums[EACH][EACH])
{
	for (int i = 0; i < EACH; i++) {
		for (int j = 0; j < EACH; j++) {
			int64_t at = (row + i) * o.stride + column + j;
			float sum = sums[i][j];

			if (row + i >= o.m || column + j >= o.n)
				continue;
			if (bias)
				sum += to_float(bias[column + j]);
			if (o.accumulate)
				sum += to_float(c[at]);
			c[at] = from_float<C>(sum);
		}
	}
}

template <class T, class C>
static __global__ void __launch_bounds__(THREADS)
        product_kernel(C *c, const T *a, const T *b, const T *bias, product_out o, side of_a, side of_b)
{
	SHARED(float, a_panel, DEPTH *ROW);
	SHARED(float, b_panel, DEPTH *ROW);
	int64_t tiles_n = (o.n + TILE - 1) / TILE, tiles = (o.m + TILE - 1) / TILE * tiles_n;
	int row = (int)threadIdx.x / (TILE / EACH) * EACH, column = (int)threadIdx.x % (TILE / EACH) * EACH;

	for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
		int64_t row0 = tile / tiles_n * TILE, column0 = tile % tiles_n * TILE;
		int is_inside = row0 + row < o.m && column0 + column < o.n;
		float sums[EACH][EACH] = {};

		for (int64_t k0 = 0; k0 < of_a.k; k0 += DEPTH) {
			panel_load(a_panel, a, of_a, row0, k0);
			panel_load(b_panel, b, of_b, column0, k0);
			__syncthreads();
#pragma unroll
			for (int l = 0; l < DEPTH && is_inside; l++) {
				vec<float, EACH> x = *(const vec<float, EACH> *)(a_panel + l * ROW + row);
				vec<float, EACH> y = *(const vec<float, EACH> *)(b_panel + l * ROW + column);

#pragma unroll
				for (int i = 0; i < EACH; i++)
#pragma unroll
					for (int j = 0; j < EACH; j++)
						sums[i][j] = fmaf(x.at[i], y.at[j], sums[i][j]);
			}
			__syncthreads();
		}
		tile_store(c, bias, o, row0 + row, column0 + column, sums);
	}
}

template <class T, class C> static int product_start(const struct cuda_launch *at, const struct op_matmul *o)
{
	product_out out = {o->m, o->n, o->c_stride, o->accumulate};
	side of_a = {o->m, o->k, o->a_stride, o->a_layout == MATMUL_NORMAL};
	side of_b = {o->n, o->k, o->b_stride, o->b_layout == MATMUL_TRANSPOSED};
	int64_t tiles = ceil_div(o->m, TILE) * ceil_div(o->n, TILE);

	if (tiles > INT32_MAX)
		tiles = INT32_MAX;
	return cuda_start(at, "matmul", product_kernel<T, C>, dim3((unsigned)tiles), THREADS, 0,
	        dev_ptr<C>(o->c), dev_ptr<T>(o->a), dev_ptr<T>(o->b), dev_ptr<T>(o->bias), out, of_a, of_b);
}

extern "C" int cuda_matmul_plain(const struct cuda_launch *at, const struct op_matmul *o)
{
	if (o->ab_dtype == DTYPE_F32)
		return product_start<float, float>(at, o);
	return o->c_dtype == DTYPE_F32 ? product_start<bf16, float>(at, o) : product_start<bf16, bf16>(at, o);
}
