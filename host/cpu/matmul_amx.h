/* Products of bf16 by the matrix unit of Intel CPUs (AMX-BF16), on the calling thread.
 *
 * An element of c is a sum over k in parts of MATMUL_AMX_DEPTH that are added to c one after the other.
 * Within a part the unit takes 32 values of k at a time. It sums even and odd ones separately, by fma in
 * ascending order, and adds both sums. So bits do not depend on m, n, layouts or strides. Subnormal operands
 * count as 0. */
#ifndef FERRY_HOST_CPU_MATMUL_AMX_H
#define FERRY_HOST_CPU_MATMUL_AMX_H

#include "host/cpu/matmul.h"

enum { MATMUL_AMX_DEPTH = 512 };

/* 1 if this CPU has the unit with tiles of the expected size and the kernel lets this process use it. Checks
 * once. */
int matmul_amx_is_here(void);

/* Requires matmul_amx_is_here. Takes 300 KiB of stack. */
matmul_bf16 matmul_amx;

#endif
