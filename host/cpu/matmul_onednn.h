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

struct onednn_product;

/* A product of one shape: c[m,n] F32 of rows c_stride apart (+)= op(a) * op(b), operands bf16. It may
 * run on several threads at once. NULL if oneDNN cannot multiply it on this CPU or is out of memory. The
 * caller then uses other kernels, the same for every thread count. */
struct onednn_product *onednn_product_open(
        const struct op_matmul *op, int64_t m, int64_t n, int64_t k, int64_t c_stride, int accumulate);
void onednn_product_close(struct onednn_product *p);

/* Bytes of scratch for a run; the scratch must be 64-byte aligned. */
int64_t onednn_product_scratch_bytes(const struct onednn_product *p);

/* a, b and c are the starts of this piece's operands. Returns 0 or ERR_DEVICE. */
int onednn_product_run(const struct onednn_product *p, void *c, const void *a, const void *b, void *scratch);

#endif
