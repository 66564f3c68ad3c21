/* LayerNorm: cpu_norm.c with a mean. */
#include "device/op_norm.h"
#include "host/cpu/cpu_norm.h"

OP_NORM_LIST(CPU_DECLARE)

int cpu_layernorm(struct cpu_context *cx, const struct op_norm *o)
{
	return cpu_norm_forward(cx, o, CPU_NORM_LAYER);
}

int cpu_layernorm_grad(struct cpu_context *cx, const struct op_norm_grad *o)
{
	return cpu_norm_backward(cx, o, CPU_NORM_LAYER);
}
