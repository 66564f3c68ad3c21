/* Activations that op_act and op_glu compute. */
#ifndef FERRY_DEVICE_ACT_KIND_H
#define FERRY_DEVICE_ACT_KIND_H

enum act_kind {
	ACT_SILU,
	ACT_GELU,       /* x * Phi(x), by erf */
	ACT_GELU_TANH,  /* gelu_new, gelu_pytorch_tanh, gelu_fast */
	ACT_GELU_QUICK, /* x * sigmoid(1.702 x) */
	ACT_RELU,
	ACT_RELU2, /* relu(x)^2 */
};
enum { ACT_KIND_COUNT = ACT_RELU2 + 1 };

#endif
