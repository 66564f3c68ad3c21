/* Sums of columns (gradients of biases): reads x once and moves 8 bytes a column for the sums. */
#include "gpu/map.cuh"

extern "C" {
#include "device/op_move.h"
}

OP_MOVE_LIST(CUDA_DECLARE)

/* A block has a strip of columns with all their rows. Each thread adds every so many rows of its columns, in
 * double as the host does. Then lanes, and then warps, are added up in a fixed order. The strip is as many
 * 16-byte accesses wide as it takes for at most COLSUM_BLOCKS blocks, which run at once. Strip and block
 * follow from the shape alone, and so do the bits. */

namespace
{

/* an H100 has 132 multiprocessors */
enum { COLSUM_THREADS_MAX = 1024, COLSUM_BLOCKS = 132, COLSUM_LANES_MAX = WARP };

/* Rows that a thread has in flight. */
template <int N> constexpr int colsum_depth = N == 8 ? 4 : 8;

/* `lanes` neighbouring threads, a power of two, share a row. */
template <class T, int N>
__global__ void __launch_bounds__(COLSUM_THREADS_MAX)
        colsum_kernel(float *sum, const T *x, int64_t rows, int64_t cols, int64_t stride, int lanes)
{
	SHARED_DYNAMIC(double, part); /* [N, warps, lanes] */
	const int DEPTH = colsum_depth<N>;
	const int tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP, warps = blockDim.x / WARP;
	const int64_t col = ((int64_t)blockIdx.x * lanes + tid % lanes) * N;
	const int64_t step = blockDim.x / lanes;
	double acc[N] = {};

	if (col < cols)
		for (int64_t r = tid / lanes; r < rows; r += step * DEPTH) {
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
		for (int away = WARP / 2; away >= lanes; away /= 2)
			acc[n] += __shfl_xor_sync(0xffffffffu, acc[n], away);
		if (lane < lanes)
			part[(n * warps + warp) * lanes + lane] = acc[n];
	}
	__syncthreads();
	for (int c = tid; c < lanes * N; c += blockDim.x) {
		const int64_t to = (int64_t)blockIdx.x * lanes * N + c;
		const double *of = part + c % N * warps * lanes + c / N;
		double total = of[0];

		for (int w = 1; w < warps; w++)
			total += of[w * lanes];
		if (to < cols)
			sum[to] = (float)(sum[to] + total);
	}
}

template <class T, int N>
int colsum_start_wide(const struct cuda_launch *at, const struct op_colsum *o, int lanes_least)
{
	const int64_t pieces = o->cols / N;
	int lanes = lanes_least, threads = COLSUM_THREADS_MAX;

	while (lanes < COLSUM_LANES_MAX && ceil_div(pieces, lanes) > COLSUM_BLOCKS)
		lanes *= 2;
	while (threads > 128 && threads / 2 / lanes * colsum_depth<N> >= o->rows)
		threads /= 2; /* few rows do not need more */
	return cuda_start(at, "colsum", colsum_kernel<T, N>, dim3((unsigned)ceil_div(pieces, lanes)), threads,
	        (int64_t)sizeof(double) * N * lanes * (threads / WARP), dev_ptr<float>(o->sum),
	        dev_ptr<const T>(o->x), o->rows, o->cols, o->x_stride, lanes);
}

template <class T> int colsum_start(const struct cuda_launch *at, const struct op_colsum *o)
{
	const int sector = 32; /* bytes that memory reads together */

	if (is_aligned(dev_ptr<void>(o->x), 16) && o->cols % vec_count<T> == 0 &&
	        (o->rows == 1 || o->x_stride % vec_count<T> == 0))
		return colsum_start_wide<T, vec_count<T>>(at, o, sector / 16);
	return colsum_start_wide<T, 1>(at, o, sector / (int)sizeof(T));
}

} // namespace

extern "C" int cuda_colsum(const struct cuda_launch *at, const struct op_colsum *o)
{
	return o->dtype == DTYPE_BF16 ? colsum_start<bf16>(at, o) : colsum_start<float>(at, o);
}
