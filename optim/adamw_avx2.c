#define KERNEL(name) name##_avx2
#include "optim/adamw_kernel.inc"
