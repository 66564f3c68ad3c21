/* Launchers that no file of gpu/cuda defines yet. */
#include "base/err.h"
#include "gpu/cuda/cuda.h"

#define MISSING(name)                                                                                        \
	__attribute__((weak)) int name(const struct cuda_launch *at, const struct op *op)                    \
	{                                                                                                    \
		(void)at;                                                                                    \
		(void)op;                                                                                    \
		return err_set(ERR_UNSUPPORTED, #name " has no kernel");                                     \
	}
MISSING(cuda_copy)
MISSING(cuda_cast)
MISSING(cuda_join)
MISSING(cuda_add)
MISSING(cuda_colsum)
MISSING(cuda_gather)
MISSING(cuda_scatter)
MISSING(cuda_embed_grad)
MISSING(cuda_rmsnorm)
MISSING(cuda_rmsnorm_grad)
MISSING(cuda_layernorm)
MISSING(cuda_layernorm_grad)
MISSING(cuda_rope)
MISSING(cuda_attention)
MISSING(cuda_attention_grad)
MISSING(cuda_glu)
MISSING(cuda_glu_grad)
MISSING(cuda_act)
MISSING(cuda_act_grad)
MISSING(cuda_cross_entropy)
MISSING(cuda_sumsq)
MISSING(cuda_adamw)
