#define KERNELS_NAME scalar
#include "host/cpu/kernels.inc"
