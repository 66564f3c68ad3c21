#define KERNEL(name) name##_avx512
#include "optim/adamw_kernel.inc"
