#include "host/cpu/cpu_norm.h"

int cpu_layernorm(struct cpu_context *cx, const struct op *op)
{
	return cpu_norm_forward(cx, &op->norm, CPU_NORM_LAYER);
}

int cpu_layernorm_grad(struct cpu_context *cx, const struct op *op)
{
	return cpu_norm_backward(cx, &op->norm_grad, CPU_NORM_LAYER);
}
