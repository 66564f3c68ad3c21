/* What this processor can do, for choosing among kernels at run time. The system must save the registers too.
 */
#ifndef FERRY_BASE_CPU_H
#define FERRY_BASE_CPU_H

#ifdef __x86_64__
#include <cpuid.h>

/* What *_avx2.c files are compiled for. F16C by CPUID: clang 14's __builtin_cpu_supports does not know its
 * name. */
static inline int cpu_has_avx2(void)
{
	unsigned int a, b, c, d;

	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

#endif
