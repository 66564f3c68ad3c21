/* Columns of wider rows: copied, converted, added. Moves each element twice, or three times where it adds. */
#include "gpu/map.cuh"
#include "gpu/rows.cuh"

extern "C" {
#include "device/op_move.h"
}

OP_MOVE_LIST(CUDA_DECLARE)

namespace
{

enum { COLUMNS_BLOCK = 256 };

template <class TO, class FROM>
__global__ void __launch_bounds__(COLUMNS_BLOCK) columns_kernel(TO *dst, const FROM *src, int64_t rows,
        int64_t cols, int64_t dst_stride, int64_t src_stride, int accumulate, int64_t spread, int64_t fold,
        float factor, rows_used used)
{
	const int64_t i = (int64_t)blockIdx.x * COLUMNS_BLOCK + threadIdx.x;

	if (i >= rows * cols || !used.has(i / cols))
		return;
	dst += i / cols * dst_stride + i % cols;
	src += i / cols / spread * fold * src_stride + i % cols;
	float sum = (accumulate ? to_float(*dst) : 0) + factor * to_float(*src);
	for (int64_t f = 1; f < fold; f++)
		sum += factor * to_float(src[f * src_stride]);
	*dst = from_float<TO>(sum);
}

template <class TO, class FROM> int columns_start(const struct cuda_launch *at, const struct op_columns *o)
{
	return cuda_start(at, "columns", columns_kernel<TO, FROM>,
	        dim3((unsigned)ceil_div(o->rows * o->cols, COLUMNS_BLOCK)), COLUMNS_BLOCK, 0,
	        dev_ptr<TO>(o->dst), dev_ptr<const FROM>(o->src), o->rows, o->cols, o->dst_stride,
	        o->src_stride, o->accumulate, o->spread > 1 ? o->spread : 1, o->fold > 1 ? o->fold : 1,
	        o->factor != 0 ? (float)o->factor : 1.0f, rows_used_of(&o->range));
}

} // namespace

extern "C" int cuda_columns(const struct cuda_launch *at, const struct op_columns *o)
{
	if (o->dst_dtype == DTYPE_F32)
		return o->src_dtype == DTYPE_F32 ? columns_start<float, float>(at, o)
		                                 : columns_start<float, bf16>(at, o);
	return o->src_dtype == DTYPE_F32 ? columns_start<bf16, float>(at, o)
	                                 : columns_start<bf16, bf16>(at, o);
}
