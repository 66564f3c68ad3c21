/* Chooses the kernels that split fp32, fp16 and bf16 into planes. */
#include "checkpoint/file/convert.h"
#include "base/cpu.h"

#include "checkpoint/file/convert_isa.h"

#include <stddef.h>

const struct convert_kernels *convert_kernels_at(int index)
{
#ifdef __x86_64__
	if (cpu_has_avx2())
		return index == 0 ? &convert_kernels_avx2 : index == 1 ? &convert_kernels_scalar : NULL;
#endif
	return index == 0 ? &convert_kernels_scalar : NULL;
}

const struct convert_kernels *convert_kernels(void)
{
	return convert_kernels_at(0);
}
