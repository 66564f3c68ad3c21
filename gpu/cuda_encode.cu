/* Rows to codes of E4M3, with a scale for each block of columns, or for each square. */
#include "gpu/coded.cuh"

OP_CODED_LIST(CUDA_DECLARE)

namespace
{

enum { THREADS = 256, WARPS = THREADS / WARP, EACH = CODE_BLOCK / WARP };

struct encode_sizes {
	int64_t rows, cols, stride, block_rows, lead, blocks;
	int is_wide; /* EACH elements and their codes are one access each */
};

/* EACH elements of a row from column `at` on; 0 where there are none. */
template <class T>
__device__ __forceinline__ void row_load(float x[EACH], const T *row, int64_t at, const encode_sizes &o)
{
	if (o.is_wide && at < o.cols) {
		const vec<T, EACH> all = *(const vec<T, EACH> *)(row + at);

#pragma unroll
		for (int i = 0; i < EACH; i++)
			x[i] = to_float(all.at[i]);
		return;
	}
#pragma unroll
	for (int i = 0; i < EACH; i++)
		x[i] = at + i >= 0 && at + i < o.cols ? to_float(row[at + i]) : 0;
}

__device__ __forceinline__ void row_store(
        uint8_t *row, const float x[EACH], float scale, int64_t at, const encode_sizes &o)
{
	const int is_used = e4m3_is_used(scale);
	vec<uint8_t, EACH> codes;

#pragma unroll
	for (int i = 0; i < EACH; i++)
		codes.at[i] = (uint8_t)(is_used ? e4m3_code(__fdiv_rn(x[i], scale)) : 0);
	if (o.is_wide && at < o.cols) {
		*(vec<uint8_t, EACH> *)(row + at) = codes;
		return;
	}
#pragma unroll
	for (int i = 0; i < EACH; i++)
		if (at + i >= 0 && at + i < o.cols)
			row[at + i] = codes.at[i];
}

__device__ __forceinline__ uint32_t largest_of(const float x[EACH], uint32_t most)
{
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		const uint32_t size = __float_as_uint(x[i]) & 0x7fffffffu;

		most = size > most ? size : most;
	}
	return most;
}

__device__ __forceinline__ uint32_t warp_largest(uint32_t most)
{
	for (int lanes = WARP / 2; lanes; lanes /= 2) {
		const uint32_t other = __shfl_xor_sync(0xffffffffu, most, lanes);

		most = other > most ? other : most;
	}
	return most;
}

/* A warp has a block of a row. */
template <class T>
__global__ void __launch_bounds__(THREADS)
        rows_kernel(uint8_t *codes, float *scales, const T *src, encode_sizes o)
{
	const int lane = (int)threadIdx.x % WARP;
	const int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
	float x[EACH];

	if (at >= o.rows * o.blocks)
		return;
	const int64_t row = at / o.blocks, column = at % o.blocks * CODE_BLOCK - o.lead + lane * EACH;

	row_load(x, src + row * o.stride, column, o);
	const float scale = e4m3_scale(warp_largest(largest_of(x, 0)));
	row_store(codes + row * o.cols, x, scale, column, o);
	if (!lane)
		scales[at] = scale;
}

/* A block has a square; its warps have a row each. */
template <class T>
__global__ void __launch_bounds__(THREADS)
        squares_kernel(uint8_t *codes, float *scales, const T *src, encode_sizes o)
{
	SHARED(uint32_t, largest, WARPS);
	const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
	const int64_t first = blockIdx.x / o.blocks * o.block_rows,
	              end = first + o.block_rows < o.rows ? first + o.block_rows : o.rows,
	              column = blockIdx.x % o.blocks * CODE_BLOCK - o.lead + lane * EACH;
	uint32_t most = 0;
	float x[EACH];

	for (int64_t r = first + warp; r < end; r += WARPS) {
		row_load(x, src + r * o.stride, column, o);
		most = largest_of(x, most);
	}
	most = warp_largest(most);
	if (!lane)
		largest[warp] = most;
	__syncthreads();
	for (int i = 0; i < WARPS; i++)
		most = largest[i] > most ? largest[i] : most;
	const float scale = e4m3_scale(most);

	for (int64_t r = first + warp; r < end; r += WARPS) {
		row_load(x, src + r * o.stride, column, o);
		row_store(codes + r * o.cols, x, scale, column, o);
	}
	if (!threadIdx.x)
		scales[blockIdx.x] = scale;
}

template <class T> int encode_start(const struct cuda_launch *at, const struct op_encode *o)
{
	const T *src = dev_ptr<const T>(o->src);
	uint8_t *codes = dev_ptr<uint8_t>(o->codes);
	encode_sizes sizes = {
	        o->rows, o->cols, o->src_stride, o->block_rows, o->lead, coded_blocks(o->lead, o->cols), 0};
	const int64_t blocks = o->block_rows == 1 ? ceil_div(o->rows * sizes.blocks, WARPS)
	                                          : ceil_div(o->rows, o->block_rows) * sizes.blocks;

	sizes.is_wide = o->lead == 0 && o->cols % EACH == 0 && o->src_stride % EACH == 0 &&
	                is_aligned(src, EACH * sizeof(T)) && is_aligned(codes, EACH);
	return cuda_start(at, "encode", o->block_rows == 1 ? rows_kernel<T> : squares_kernel<T>,
	        dim3((unsigned)blocks), THREADS, 0, codes, dev_ptr<float>(o->scales), src, sizes);
}

} // namespace

extern "C" int cuda_encode(const struct cuda_launch *at, const struct op_encode *o)
{
	return o->src_dtype == DTYPE_F32 ? encode_start<float>(at, o) : encode_start<bf16>(at, o);
}
