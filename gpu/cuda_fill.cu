#include "gpu/kernel.cuh"

extern "C" int cuda_fill(const struct cuda_launch *at, const struct op *op)
{
	const struct op_fill *o = &op->fill;

	return cuda_check(
	        cudaMemsetAsync(dev_ptr<void>(o->dst), o->value, (size_t)o->bytes, at->stream), "fill");
}
