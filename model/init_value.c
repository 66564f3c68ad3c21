/* First values of new models and adapters. */
#include "model/model.h"

#include "base/num.h"

#include <math.h>

float model_init_value(const struct model *model, int tensor, int64_t index, uint64_t seed)
{
	const struct model_config *c = &model->config;
	const struct model_tensor *t = &model->tensors[tensor];
	enum role_kind kind = role_facts[t->role].kind;
	double deviation = kind == KIND_RESIDUAL || kind == KIND_RESIDUAL_STACK
	                           ? c->residual_initializer_range
	                           : c->initializer_range;

	if (kind == KIND_SCALAR)
		return 1;
	if (kind == KIND_BUFFER)
		return 0;
	if (kind == KIND_NORM)
		return (float)(1 - c->norm_of[t->role].weight_offset);
	if (kind == KIND_ONES)
		return 1;
	if (kind == KIND_RATES) /* of 0.01 to 16 */
		return (float)log(0.01 + 15.99 * rng_uniform(seed, (uint64_t)tensor, (uint64_t)index));
	if (kind ==
	        KIND_MAGNITUDE) /* the norm of the matrix's row, which its values give (train/magnitudes.h) */
		return 0;
	if (t->role == ROLE_EMBED_LORA_A || t->role == ROLE_EMBED_LORA_B) /* as PEFT: A zero, B not */
		return t->role == ROLE_EMBED_LORA_A
		               ? 0
		               : (float)rng_normal(seed, (uint64_t)tensor, (uint64_t)index);
	if (kind == KIND_ADAPTER) /* A or, zero, B */
		return role_is_a(t->role)
		               ? (float)((2 * rng_uniform(seed, (uint64_t)tensor, (uint64_t)index) - 1) /
		                         sqrt((double)t->shape[1]))
		               : 0;
	if (kind == KIND_BIAS || kind == KIND_BIAS_STACK ||
	        ((t->role == ROLE_EMBED || t->role == ROLE_INPUTS_TABLE) && c->pad_id >= 0 &&
	                index / model_tensor_cols(t) == c->pad_id))
		return 0;
	return (float)(deviation * rng_normal(seed, (uint64_t)tensor, (uint64_t)index));
}
