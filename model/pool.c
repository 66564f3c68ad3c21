/* Makes an embedder of a model: its head gives vectors, not logits. */
#include "model/model.h"

int model_pool(struct model *model, enum pool_mode mode)
{
	struct model_config config = model->config;

	config.pool = mode;
	config.has[ROLE_HEAD_W] = config.has[ROLE_HEAD_B] = 0;
	config.tied = 0;
	return model_rebuild(model, &config);
}
