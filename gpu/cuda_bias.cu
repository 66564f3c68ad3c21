/* Adds a bf16 bias to a product in fp32, for which cuBLASLt has no epilogue. */
#include "gpu/cuda_matmul.h"
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_matmul.h"
}

enum { THREADS = 256, ROWS = 8 };

/* A thread has a column and the rows of the block's group. It loads all of them before it adds. */
static __global__ void __launch_bounds__(THREADS)
        bias_kernel(float *c, const bf16 *bias, int64_t m, int64_t n, int64_t stride, int64_t column_blocks)
{
	int64_t column = blockIdx.x % column_blocks * THREADS + threadIdx.x;
	int64_t row = blockIdx.x / column_blocks * ROWS;
	float add, x[ROWS];

	if (column >= n)
		return;
	c += row * stride + column;
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		if (row + r < m)
			x[r] = c[r * stride];
	add = to_float(bias[column]);
#pragma unroll
	for (int r = 0; r < ROWS; r++)
		if (row + r < m)
			c[r * stride] = x[r] + add;
}

extern "C" int cuda_matmul_bias(const struct cuda_launch *at, const struct op_matmul *o)
{
	int64_t column_blocks = ceil_div(o->n, THREADS);

	return cuda_start(at, "matmul", bias_kernel, dim3((unsigned)(column_blocks * ceil_div(o->m, ROWS))),
	        THREADS, 0, dev_ptr<float>(o->c), dev_ptr<bf16>(o->bias), o->m, o->n, o->c_stride,
	        column_blocks);
}
