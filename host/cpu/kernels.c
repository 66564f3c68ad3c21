/* The choice of kernels by the CPU's instruction set. */
#include "host/cpu/kernels.h"

#include <string.h>

extern const struct cpu_kernels cpu_kernels_scalar, cpu_kernels_avx2, cpu_kernels_avx512;

const struct cpu_kernels *cpu_kernels_find(const char *name)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
	if (!strcmp(name, "avx512"))
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		                       __builtin_cpu_supports("avx512dq") &&
		                       __builtin_cpu_supports("avx512vl")
		               ? &cpu_kernels_avx512
		               : NULL;
	if (!strcmp(name, "avx2"))
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &cpu_kernels_avx2
		                                                                       : NULL;
#endif
	return !strcmp(name, "scalar") ? &cpu_kernels_scalar : NULL;
}

const struct cpu_kernels *cpu_kernels(void)
{
	static const struct cpu_kernels *best;
	const struct cpu_kernels *found = __atomic_load_n(&best, __ATOMIC_ACQUIRE);

	if (!found) {
		found = cpu_kernels_find("avx512");
		found = found ? found : cpu_kernels_find("avx2");
		found = found ? found : cpu_kernels_find("scalar");
		__atomic_store_n(&best, found, __ATOMIC_RELEASE);
	}
	return found;
}
