#include "host/cpu/cpu_norm.h"

int cpu_rmsnorm(struct cpu_context *cx, const struct op *op)
{
	return cpu_norm_forward(cx, &op->norm, CPU_NORM_RMS);
}

int cpu_rmsnorm_grad(struct cpu_context *cx, const struct op *op)
{
	return cpu_norm_backward(cx, &op->norm_grad, CPU_NORM_RMS);
}
