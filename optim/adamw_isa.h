/* The kernels of adamw.h, one pair per translation unit. Only adamw.c calls them, after it checked the CPU.
 */
#ifndef FERRY_OPTIM_ADAMW_ISA_H
#define FERRY_OPTIM_ADAMW_ISA_H

#include "optim/adamw.h"

#define ADAMW_KERNELS(isa)                                                                                   \
	void adamw_update_##isa(const struct adamw_span *span, const struct adamw_step *step);               \
	void sumsq_blocks_##isa(double *partial, const void *grad, int64_t count, enum dtype dtype)

ADAMW_KERNELS(scalar);
ADAMW_KERNELS(avx2);
ADAMW_KERNELS(avx512);
ADAMW_KERNELS(neon);

#endif
