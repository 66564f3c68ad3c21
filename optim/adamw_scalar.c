#define KERNEL(name) name##_scalar
#include "optim/adamw_kernel.inc"
