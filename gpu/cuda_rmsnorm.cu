#include "gpu/cuda_norm_grad.cuh"

extern "C" int cuda_rmsnorm(const struct cuda_launch *at, const struct op *op)
{
	return norm_forward_any<NORM_RMS>(at, op);
}

extern "C" int cuda_rmsnorm_grad(const struct cuda_launch *at, const struct op *op)
{
	return norm_backward_any<NORM_RMS>(at, op);
}
