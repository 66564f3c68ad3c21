/* The kernels of kernels.inc for AVX2. */
#if defined(__x86_64__)
#define KERNELS_NAME avx2
#include "host/cpu/kernels.inc"
#else
typedef int kernels_avx2_empty;
#endif
