/* Loops that make codes, compiled for AVX2. */
#include "optim/weight_nearest_kernel.inc"

const struct weight_nearest_kernels weight_nearest_avx2 = {largest, nearest, e4m3, widen};
