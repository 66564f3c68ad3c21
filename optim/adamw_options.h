/* What a run chooses about AdamW: its settings, and the instruction set that updates on the CPU use. */
#ifndef FERRY_OPTIM_ADAMW_OPTIONS_H
#define FERRY_OPTIM_ADAMW_OPTIONS_H

#include <stdint.h>

/* The settings of a run. */
struct adamw_options {
	double beta1, beta2, epsilon, weight_decay;
	uint64_t seed; /* of stochastic rounding */
};

enum adamw_isa { ADAMW_ISA_SCALAR, ADAMW_ISA_AVX2, ADAMW_ISA_AVX512, ADAMW_ISA_NEON, ADAMW_ISA_COUNT };

/* Widest of the machine (CPUID and XGETBV), or the one asked for by name ("auto", "scalar", "avx2", "avx512",
 * "neon"): ERR_INPUT with the list when the name is unknown or this CPU lacks it. */
int adamw_isa_find(enum adamw_isa *isa, const char *name);
const char *adamw_isa_name(enum adamw_isa isa);

#endif
