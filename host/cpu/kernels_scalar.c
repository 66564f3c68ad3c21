/* The kernels of kernels.inc for the baseline of the architecture. */
#define KERNELS_NAME scalar
#include "host/cpu/kernels.inc"
