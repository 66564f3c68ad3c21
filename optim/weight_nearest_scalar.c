/* Loops that make codes, for any processor, and the choice among them. */
#include "base/cpu.h"
#include "optim/weight_nearest_kernel.inc"

const struct weight_nearest_kernels weight_nearest_scalar = {largest, nearest, e4m3, widen};

const struct weight_nearest_kernels *weight_nearest_kernels(void)
{
#ifdef __x86_64__
	if (cpu_has_avx2())
		return &weight_nearest_avx2;
#endif
	return &weight_nearest_scalar;
}
