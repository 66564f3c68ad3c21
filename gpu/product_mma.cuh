/* A tile of a product on tensor cores by one block of threads, of bf16 with fp32 sums. */
#ifndef FERRY_GPU_PRODUCT_MMA_CUH
#define FERRY_GPU_PRODUCT_MMA_CUH

#include "gpu/mma.cuh"

/* A block computes a tile of SIDE x SIDE of c, each of its 8 warps 32 x 64 of it. k passes through shared
 * memory DEPTH at a time. An operand lies there as it lies in memory: as [outer, k] or, turned, as
 * [k, outer], where outer are the rows of c for a and its columns for b. Rows have a skew, so that ldmatrix
 * meets all banks. */
enum {
	SIDE = 128,
	DEPTH = 32,
	THREADS = 256,
	PITCH = DEPTH + 8,
	PITCH_TURNED = SIDE + 8,
	PANEL = SIDE * PITCH /* elements; a turned one needs less */
};

/* The fragment of 16 rows of c from `outer` on, and two fragments of 8 columns. */
template <int TURNED>
static __device__ __forceinline__ void fragment_a(uint32_t f[4], const bf16 *panel, int outer, int k)
{
	const int lane = (int)threadIdx.x % WARP;

	if (TURNED)
		ldmatrix_x4_trans(f, panel + (k + (lane & 7) + (lane >> 4) * 8) * PITCH_TURNED + outer +
		                             (lane >> 3 & 1) * 8);
	else
		ldmatrix_x4(f, panel + (outer + (lane & 15)) * PITCH + k + (lane >> 4) * 8);
}

template <int TURNED>
static __device__ __forceinline__ void fragment_b(uint32_t f[4], const bf16 *panel, int outer, int k)
{
	const int lane = (int)threadIdx.x % WARP;

	if (TURNED)
		ldmatrix_x4_trans(f, panel + (k + (lane & 15)) * PITCH_TURNED + outer + (lane >> 4) * 8);
	else
		ldmatrix_x4(
		        f, panel + (outer + (lane & 7) + (lane >> 4) * 8) * PITCH + k + (lane >> 3 & 1) * 8);
}

/* Adds the products of two panels to a warp's 32 x 64 of c, which begin at `row` and `column` of the tile:
 * sums[16 rows][8 columns], as in mma.cuh. k ascends. */
template <int A_TURNED, int B_TURNED>
static __device__ __forceinline__ void panels_add(
        float (&sums)[2][8][4], const bf16 *a, const bf16 *b, int row, int column)
{
#pragma unroll
	for (int k = 0; k < DEPTH; k += 16) {
		uint32_t fa[2][4], fb[4];

#pragma unroll
		for (int m = 0; m < 2; m++)
			fragment_a<A_TURNED>(fa[m], a, row + m * 16, k);
#pragma unroll
		for (int n = 0; n < 8; n += 2) {
			fragment_b<B_TURNED>(fb, b, column + n * 8, k);
#pragma unroll
			for (int m = 0; m < 2; m++) {
				mma_bf16(sums[m][n], fa[m], fb);
				mma_bf16(sums[m][n + 1], fa[m], fb + 2);
			}
		}
	}
}

#endif
