/* The kernels of kernels.inc for AVX-512. */
#if defined(__x86_64__)
#define KERNELS_NAME avx512
#include "host/cpu/kernels.inc"
#else
typedef int kernels_avx512_empty;
#endif
