/* Features of this processor, to choose kernels at run time. A feature counts only if the operating system
 * saves its registers too. */
#ifndef FERRY_BASE_CPU_H
#define FERRY_BASE_CPU_H

#ifdef __x86_64__
/* 1 if the processor has all that *_avx2.c files are compiled for: AVX2, FMA and F16C. F16C comes from CPUID,
 * because clang 14's __builtin_cpu_supports does not know its name. Cheap; any thread. */
int cpu_has_avx2(void);
#endif

#endif
