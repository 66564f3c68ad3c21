/* Products of fp32 blocks on one thread, for matmul and attention. */
#ifndef FERRY_HOST_CPU_MATMUL_H
#define FERRY_HOST_CPU_MATMUL_H

#include "device/op_matmul.h"

/* Must have been called once, by any thread, before cpu_sgemm: OpenBLAS then stays on its caller's thread. */
void cpu_sgemm_init(void);

/* c[m,n] = alpha * op(a) * op(b) + beta * c, row-major; beta 0 does not read c. */
void cpu_sgemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, int64_t c_stride,
        int64_t a_stride, int64_t b_stride, enum matmul_layout a_layout, enum matmul_layout b_layout,
        float alpha, float beta);

/* How a product is cut, from its shape only: tiles of c, and with count_k > 1 parts of k whose products are
 * summed in order. Sizes of a full piece, and how many there are. */
struct matmul_tiling {
	int64_t m, n, k, count_m, count_n, count_k;
};
void matmul_tiling(struct matmul_tiling *tiling, int64_t m, int64_t n, int64_t k);

#endif
