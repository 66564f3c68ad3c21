/* Activations that op_act and op_glu compute. */
#ifndef FERRY_DEVICE_ACT_KIND_H
#define FERRY_DEVICE_ACT_KIND_H

/* ROW(name, more): one line for each. */
#define ACT_KINDS(ROW, more)                                                                                 \
	ROW(SILU, more)                                                                                      \
	ROW(GELU, more)       /* x * Phi(x), by erf */                                                       \
	ROW(GELU_TANH, more)  /* gelu_new, gelu_pytorch_tanh, gelu_fast */                                   \
	ROW(GELU_QUICK, more) /* x * sigmoid(1.702 x) */                                                     \
	ROW(RELU, more)                                                                                      \
	ROW(RELU2, more) /* relu(x)^2 */                                                                     \
	ROW(SIGMOID, more)                                                                                   \
	ROW(TANH, more)                                                                                      \
	ROW(LINEAR, more) /* x */

#define ACT_ENUM(name, more) ACT_##name,
#define ACT_PLUS(name, more) +1
enum act_kind { ACT_KINDS(ACT_ENUM, ) };
enum { ACT_KIND_COUNT = ACT_KINDS(ACT_PLUS, ) };
#undef ACT_ENUM
#undef ACT_PLUS

#endif
