/* What a model computes for each token. */
#include "model/model.h"

double model_active_count(const struct model *model, int tensor)
{
	const struct model_tensor *t = &model->tensors[tensor];
	enum role_kind kind = role_facts[t->role].kind;
	const struct experts_config *e = t->layer < 0 ? NULL : &model->config.block[t->layer].experts;

	return kind == KIND_STACK || kind == KIND_RESIDUAL_STACK || kind == KIND_BIAS_STACK
	               ? (double)(t->count / e->count * e->chosen)
	               : (double)t->count;
}

double model_flops_per_token(const struct model *model, int64_t row_tokens)
{
	const struct model_config *c = &model->config;
	double matrices = (double)c->C * (double)c->V, attention = 0, states = 0;

	for (int i = 0; i < model->tensor_count; i++)
		if (model->tensors[i].layer >= 0 && model->tensors[i].rank >= 2)
			matrices += model_active_count(model, i);
	for (int64_t l = 0; l < c->L; l++) {
		const struct block_config *b = &c->block[l];

		if (b->has[ROLE_O_W])
			attention += (double)(b->H * b->D);
		if (b->has[ROLE_DELTA_OUT_W] || b->has[ROLE_SCAN_OUT_W])
			states += (double)(b->delta.value_heads * b->delta.key_dim * b->delta.value_dim);
	}
	return 6 * matrices + 6 * attention * (double)row_tokens + 18 * states;
}
