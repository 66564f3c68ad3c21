/* The kernels of convert.h by instruction set. */
#ifndef FERRY_CHECKPOINT_FILE_CONVERT_ISA_H
#define FERRY_CHECKPOINT_FILE_CONVERT_ISA_H

#include "checkpoint/file/convert.h"

extern const struct convert_kernels convert_kernels_scalar;
#ifdef __x86_64__
extern const struct convert_kernels convert_kernels_avx2;
#endif

#endif
