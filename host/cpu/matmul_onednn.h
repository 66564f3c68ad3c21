/* Products by oneDNN on the calling thread. */
#ifndef FERRY_HOST_CPU_MATMUL_ONEDNN_H
#define FERRY_HOST_CPU_MATMUL_ONEDNN_H

#include "host/cpu/matmul.h"

/* The vectors that oneDNN uses here. */
enum matmul_simd onednn_simd(void);

/* As cpu_sgemm. */
void onednn_sgemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, int64_t c_stride,
        int64_t a_stride, int64_t b_stride, enum matmul_layout a_layout, enum matmul_layout b_layout,
        float alpha, float beta);

#endif
