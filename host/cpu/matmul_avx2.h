/* Products in AVX2, of fp32 or of bf16 that is widened as it is packed, on the calling thread.
 *
 * An element of c is alpha times a sum over k in ascending order by fma, in parts of MATMUL_AVX2_DEPTH that
 * are added to c one after the other. So its bits do not depend on m, n, layouts or strides. The blocks are
 * those of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008. */
#ifndef FERRY_HOST_CPU_MATMUL_AVX2_H
#define FERRY_HOST_CPU_MATMUL_AVX2_H

#include "device/op_matmul.h"

enum { MATMUL_AVX2_DEPTH = 256 };

/* c[m,n] = alpha * op(a) * op(b), or added to c with accumulate. dtype: of a and b. Requires AVX2 and FMA.
 * Takes 275 KiB of stack. */
void matmul_avx2(float *c, const void *a, const void *b, int64_t m, int64_t n, int64_t k, int64_t c_stride,
        int64_t a_stride, int64_t b_stride, enum matmul_layout a_layout, enum matmul_layout b_layout,
        enum dtype dtype, float alpha, int accumulate);

#endif
