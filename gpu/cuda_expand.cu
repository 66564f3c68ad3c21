/* Weights from codes and the scales of their blocks: reads 1 byte an element, and scales from the caches. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_move.h"
}

OP_MOVE_LIST(CUDA_DECLARE)

namespace
{

enum { THREADS = 256, COLS = 4 * THREADS };

/* A block has a row and COLS columns. */
template <class T>
static __global__ void __launch_bounds__(THREADS) expand_kernel(T *dst, const int8_t *codes,
        const float *scales, int64_t cols, int64_t block_rows, int64_t block_cols, int64_t column_blocks)
{
	int64_t row = blockIdx.x / column_blocks, first = blockIdx.x % column_blocks * COLS + threadIdx.x;

	scales += row / block_rows * ((cols - 1) / block_cols + 1);
	for (int64_t c = first; c < cols && c < first + COLS; c += THREADS)
		dst[row * cols + c] =
		        from_float<T>(__fmul_rn((float)codes[row * cols + c], scales[c / block_cols]));
}

template <class T> int expand_start(const struct cuda_launch *at, const struct op_expand *o)
{
	int64_t column_blocks = ceil_div(o->cols, COLS);

	return cuda_start(at, "expand", expand_kernel<T>, dim3((unsigned)(column_blocks * o->rows)), THREADS,
	        0, dev_ptr<T>(o->dst), dev_ptr<const int8_t>(o->codes), dev_ptr<const float>(o->scales),
	        o->cols, o->block_rows, o->block_cols, column_blocks);
}

} // namespace

extern "C" int cuda_expand(const struct cuda_launch *at, const struct op_expand *o)
{
	return o->dst_dtype == DTYPE_F32 ? expand_start<float>(at, o) : expand_start<bf16>(at, o);
}
