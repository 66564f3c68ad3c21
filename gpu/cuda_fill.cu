/* Fill. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_move.h"
}

OP_MOVE_LIST(CUDA_DECLARE)

extern "C" int cuda_fill(const struct cuda_launch *at, const struct op_fill *o)
{
	return cuda_check(
	        cudaMemsetAsync(dev_ptr<void>(o->dst), o->value, (size_t)o->bytes, at->stream), "fill");
}
