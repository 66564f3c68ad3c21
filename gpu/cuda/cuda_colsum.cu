/* Reads x once and moves 8 bytes a column for the sums.
 *
 * A block has a strip of columns and all rows of it: each thread adds every so many rows of the accesses of
 * one column of accesses, in double as the host does; lanes, then warps, are combined in one order. The strip
 * is as wide as leaves about COLSUM_BLOCKS blocks, at least 32 bytes: it depends on the shape only, and so do
 * the bits. */
#include "gpu/cuda/map.cuh"

namespace
{

enum { COLSUM_BLOCK = 1024, COLSUM_WARPS = COLSUM_BLOCK / WARP, COLSUM_BLOCKS = 120 };

template <class T, int N>
__global__ void __launch_bounds__(COLSUM_BLOCK)
        colsum_kernel(float *sum, const T *x, int64_t rows, int64_t cols, int64_t stride, int lanes)
{
	const int DEPTH = N == 8 ? 4 : 8;
	SHARED(double, part, COLSUM_WARPS *WARP);
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	const int64_t col = ((int64_t)blockIdx.x * lanes + threadIdx.x % lanes) * N;
	const int64_t step = COLSUM_BLOCK / lanes;
	double acc[N] = {};

	if (col < cols)
		for (int64_t r = threadIdx.x / lanes; r < rows; r += step * DEPTH) {
			span<T, N> in[DEPTH];

#pragma unroll
			for (int i = 0; i < DEPTH; i++)
				if (r + i * step < rows)
					span_load(in[i], x + (r + i * step) * stride + col);
#pragma unroll
			for (int i = 0; i < DEPTH; i++)
				if (r + i * step < rows) {
#pragma unroll
					for (int n = 0; n < N; n++)
						acc[n] += (double)span_get(in[i], n);
				}
		}
#pragma unroll
	for (int n = 0; n < N; n++) {
		double total = acc[n];

		for (int away = WARP / 2; away >= lanes; away /= 2)
			total += __shfl_xor_sync(0xffffffffu, total, away);
		if (lane < lanes)
			part[warp * WARP + lane] = total;
		__syncthreads();
		if ((int)threadIdx.x < lanes && col < cols) {
			total = part[lane];
			for (int w = 1; w < COLSUM_WARPS; w++)
				total += part[w * WARP + lane];
			sum[col + n] = (float)(sum[col + n] + total);
		}
		__syncthreads();
	}
}

template <class T> int colsum_start(const struct cuda_launch *at, const struct op_colsum *o)
{
	const T *x = dev_ptr<const T>(o->x);
	const int is_wide = is_aligned(x, 16) && o->cols % vec_count<T> == 0 &&
	                    (o->rows == 1 || o->x_stride % vec_count<T> == 0);
	const int64_t pieces = is_wide ? o->cols / vec_count<T> : o->cols;
	int lanes = is_wide ? 8 : WARP, least = is_wide ? 2 : 32 / (int)sizeof(T);

	while (lanes > least && ceil_div(pieces, lanes) < COLSUM_BLOCKS)
		lanes /= 2;
	return cuda_start(at, "colsum", is_wide ? colsum_kernel<T, vec_count<T>> : colsum_kernel<T, 1>,
	        dim3((unsigned)ceil_div(pieces, lanes)), COLSUM_BLOCK, 0, dev_ptr<float>(o->sum), x, o->rows,
	        o->cols, o->x_stride, lanes);
}

} // namespace

extern "C" int cuda_colsum(const struct cuda_launch *at, const struct op *op)
{
	return op->colsum.dtype == DTYPE_BF16 ? colsum_start<bf16>(at, &op->colsum)
	                                      : colsum_start<float>(at, &op->colsum);
}
