/* Makes an embedder or a classifier of a model: its head gives vectors or classes, not logits of tokens. */
#include "model/model.h"

#include "model/family.h"

static int family_has(const struct model_family *family, enum tensor_role role)
{
	for (const struct family_tensor *t = family->tensors; t->role != ROLE_COUNT; t++)
		if (t->role == role)
			return 1;
	return 0;
}

static void head_drop(struct model_config *c)
{
	for (int role = ROLE_POOL_W; role <= ROLE_CLASS_B; role++)
		c->has[role] = 0;
	c->has[ROLE_HEAD_W] = c->has[ROLE_HEAD_B] = 0;
	c->tied = 0;
}

/* A family without layers of its own for it has one matrix, `score`, behind the last token. */
void model_config_classify(struct model_config *c, const struct model_family *family, int64_t labels)
{
	head_drop(c);
	c->labels = labels;
	c->is_classifier = 1;
	c->pool = c->is_encoder ? POOL_CLS : POOL_LASTTOKEN;
	for (int role = ROLE_POOL_W; role <= ROLE_CLASS_B; role++)
		c->has[role] = (uint8_t)(role == ROLE_CLASS_W || family_has(family, (enum tensor_role)role));
}

int model_pool(struct model *model, enum pool_mode mode)
{
	struct model_config config = model->config;

	head_drop(&config);
	config.pool = mode;
	config.is_classifier = 0;
	config.labels = 0;
	return model_rebuild(model, &config);
}

int model_classify(struct model *model, int64_t labels)
{
	struct model_config config = model->config;

	model_config_classify(&config, model->family, labels);
	return model_rebuild(model, &config);
}
