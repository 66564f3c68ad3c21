#include "checkpoint/convert.h"

#include "checkpoint/convert_isa.h"

#include <stddef.h>

const struct convert_kernels *convert_kernels_at(int index)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
		return index == 0 ? &convert_kernels_avx2 : index == 1 ? &convert_kernels_scalar : NULL;
#endif
	return index == 0 ? &convert_kernels_scalar : NULL;
}

const struct convert_kernels *convert_kernels(void)
{
	return convert_kernels_at(0);
}
