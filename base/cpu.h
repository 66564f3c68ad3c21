/* Features of this processor, to choose kernels at run time. The system must support their registers too. */
#ifndef FERRY_BASE_CPU_H
#define FERRY_BASE_CPU_H

#ifdef __x86_64__
/* What *_avx2.c files are compiled for: 1 or 0. F16C by CPUID: clang 14's __builtin_cpu_supports does not
 * know its name. Cheap, and for any thread. */
int cpu_has_avx2(void);
#endif

#endif
