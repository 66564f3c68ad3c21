/* The loop that rmsnorm and layernorm share: rmsnorm is layernorm with mean 0. */
#ifndef FERRY_HOST_CPU_CPU_NORM_H
#define FERRY_HOST_CPU_CPU_NORM_H

#include "device/op_norm.h"
#include "host/cpu/cpu.h"

enum cpu_norm_kind { CPU_NORM_RMS, CPU_NORM_LAYER };

int cpu_norm_forward(struct cpu_context *cx, const struct op_norm *op, enum cpu_norm_kind kind);
int cpu_norm_backward(struct cpu_context *cx, const struct op_norm_grad *op, enum cpu_norm_kind kind);

#endif
