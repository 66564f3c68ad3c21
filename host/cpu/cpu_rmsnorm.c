/* RMSNorm: cpu_norm.c without a mean. */
#include "device/op_norm.h"
#include "host/cpu/cpu_norm.h"

OP_NORM_LIST(CPU_DECLARE)

int cpu_rmsnorm(struct cpu_context *cx, const struct op_norm *o)
{
	return cpu_norm_forward(cx, o, CPU_NORM_RMS);
}

int cpu_rmsnorm_grad(struct cpu_context *cx, const struct op_norm_grad *o)
{
	return cpu_norm_backward(cx, o, CPU_NORM_RMS);
}
