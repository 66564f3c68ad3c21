/* What a model computes for each token. */
#include "model/model.h"

double model_active_count(const struct model *model, int tensor)
{
	const struct model_tensor *t = &model->tensors[tensor];
	const struct experts_config *e;

	if (!role_is_of_each_expert(t->role))
		return (double)t->count;
	e = &model->config.block[t->layer].experts;
	return (double)(t->count / e->count * e->chosen);
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
		states += (double)(b->delta.value_heads * b->delta.key_dim * b->delta.value_dim);
	}
	return 6 * matrices + 6 * attention * (double)row_tokens + 18 * states;
}
