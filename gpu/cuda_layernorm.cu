/* LayerNorm: the kernels of cuda_norm.cuh with a mean. */
#include "gpu/cuda_norm_grad.cuh"

OP_NORM_LIST(CUDA_DECLARE)

extern "C" int cuda_layernorm(const struct cuda_launch *at, const struct op_norm *o)
{
	return norm_forward_any<NORM_LAYER>(at, o);
}

extern "C" int cuda_layernorm_grad(const struct cuda_launch *at, const struct op_norm_grad *o)
{
	return norm_backward_any<NORM_LAYER>(at, o);
}
