#include "gpu/cuda/cuda.h"

#include "base/err.h"

int cuda_check(cudaError_t error, const char *call)
{
	if (error == cudaSuccess)
		return 0;
	return err_set(ERR_DEVICE, "%s: %s (%s)", call, cudaGetErrorString(error), cudaGetErrorName(error));
}
