/* Products of bf16 by the vectors of CPUs with AVX512-BF16, on the calling thread.
 *
 * An element of c is a sum over k in parts of MATMUL_AVX512BF16_DEPTH that are added to c one after the
 * other. Within a part the products of k are added by fma, two at a time: first the odd one, then the even
 * one. So bits do not depend on m, n, layouts or strides. Subnormal operands and sums count as 0. */
#ifndef FERRY_HOST_CPU_MATMUL_AVX512BF16_H
#define FERRY_HOST_CPU_MATMUL_AVX512BF16_H

#include "host/cpu/matmul.h"

enum { MATMUL_AVX512BF16_DEPTH = 768 };

/* Requires AVX512-BF16, BW, DQ and VL. Takes 550 KiB of stack. */
matmul_bf16 matmul_avx512bf16;

#endif
