#include "gpu/cuda_norm_grad.cuh"

extern "C" int cuda_layernorm(const struct cuda_launch *at, const struct op *op)
{
	return norm_forward_any<NORM_LAYER>(at, op);
}

extern "C" int cuda_layernorm_grad(const struct cuda_launch *at, const struct op *op)
{
	return norm_backward_any<NORM_LAYER>(at, op);
}
