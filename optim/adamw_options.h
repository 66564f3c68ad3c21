/* A run's choices for AdamW: its settings, and the instruction set of updates on the CPU. */
#ifndef FERRY_OPTIM_ADAMW_OPTIONS_H
#define FERRY_OPTIM_ADAMW_OPTIONS_H

#include <stdint.h>

/* The settings of a run. */
struct adamw_options {
	double beta1, beta2, epsilon, weight_decay;
	uint64_t seed; /* of stochastic rounding */
};

enum adamw_isa { ADAMW_ISA_SCALAR, ADAMW_ISA_AVX2, ADAMW_ISA_AVX512, ADAMW_ISA_NEON, ADAMW_ISA_COUNT };

/* Finds an instruction set by name: "scalar", "avx2", "avx512", "neon", or "auto" for the widest of this
 * machine (CPUID and XGETBV). ERR_INPUT with the list if the name is unknown or this CPU lacks it. */
int adamw_isa_find(enum adamw_isa *isa, const char *name);
const char *adamw_isa_name(enum adamw_isa isa);

#endif
