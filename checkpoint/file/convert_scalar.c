/* Kernels that split weights into planes, for any CPU. */
#include "checkpoint/file/convert_kernel.inc"

const struct convert_kernels convert_kernels_scalar = {
        "scalar", split_f32, split_f16, check_bf16, check_f32, join_f32, add_product};
