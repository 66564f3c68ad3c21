#if defined(__x86_64__)
#define KERNELS_NAME avx2
#include "host/cpu/kernels.inc"
#else
typedef int kernels_avx2_empty;
#endif
