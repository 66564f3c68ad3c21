/* Asks for the processor's features once, because CPUID takes microseconds in a virtual machine. */
#include "base/cpu.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <stdatomic.h>

int cpu_has_avx2(void)
{
	static atomic_int answer; /* 1 + the answer; 0: not asked yet */
	int known = atomic_load_explicit(&answer, memory_order_relaxed);

	if (!known) {
		unsigned int a, b, c, d;

		known = 1 + (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		                    __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C));
		atomic_store_explicit(&answer, known, memory_order_relaxed);
	}
	return known - 1;
}
#endif
