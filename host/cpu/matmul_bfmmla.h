/* Products of bf16 by the matrix instruction of arm64 CPUs (BFMMLA), on the calling thread.
 *
 * An element of c is a sum over k in parts of MATMUL_BFMMLA_DEPTH, added to c in ascending order. Each step
 * adds two products to each other and then to the part's sum, in ascending order of k. The instruction rounds
 * to odd: towards zero, with the last bit 1 if the result is inexact. So bits do not depend on m, n, layouts
 * or strides. Subnormal operands and sums count as 0. (Arm Architecture Reference Manual, BFMMLA and
 * FPCR.EBF, which Linux leaves 0.) */
#ifndef FERRY_HOST_CPU_MATMUL_BFMMLA_H
#define FERRY_HOST_CPU_MATMUL_BFMMLA_H

#include "host/cpu/matmul.h"

enum { MATMUL_BFMMLA_DEPTH = 512 };

/* 1 if this CPU has the instruction. */
int matmul_bfmmla_is_here(void);

/* Requires matmul_bfmmla_is_here. Takes 270 KiB of stack. */
matmul_bf16 matmul_bfmmla;

#endif
