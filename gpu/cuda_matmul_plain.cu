/* Matrix products of any shape, stride and alignment, if cuBLASLt is missing or refuses them. */
#include "gpu/cuda_matmul.h"
#include "gpu/product.cuh"

extern "C" {
#include "device/op_matmul.h"
}

template <class T, class C>
static __global__ void __launch_bounds__(THREADS)
        product_kernel(C *c, const T *a, const T *b, const T *bias, product_out o, side of_a, side of_b)
{
	SHARED(float, a_panel, DEPTH *ROW);
	SHARED(float, b_panel, DEPTH *ROW);
	int64_t tiles_n = (o.n + TILE - 1) / TILE, tiles = (o.m + TILE - 1) / TILE * tiles_n;

	for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
		product_tile(a_panel, b_panel, c, a, b, bias, o, of_a, of_b, tile / tiles_n * TILE,
		        tile % tiles_n * TILE);
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
