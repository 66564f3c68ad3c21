/* A tile of a product in fp32 by one block of threads, for operands of any shape, stride and alignment. */
#ifndef FERRY_GPU_PRODUCT_CUH
#define FERRY_GPU_PRODUCT_CUH

#include "gpu/kernel.cuh"

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

/* The tile of c from (row0, column0) on. The panels are shared memory, DEPTH * ROW elements each. */
template <class T, class C>
static __device__ __forceinline__ void product_tile(float *a_panel, float *b_panel, C *c, const T *a,
        const T *b, const T *bias, const product_out &o, const side &of_a, const side &of_b, int64_t row0,
        int64_t column0)
{
	int row = (int)threadIdx.x / (TILE / EACH) * EACH, column = (int)threadIdx.x % (TILE / EACH) * EACH;
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

#endif
