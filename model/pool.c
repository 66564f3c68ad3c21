/* Makes an embedder or a classifier of a model: its head gives vectors or classes, not logits of tokens. */
#include "model/family.h"
#include "model/tables.h"

#include "base/mem.h"

/* Whether the head of this kind has a tensor of this role. */
static int head_has(const struct model_config *c, const struct model_family *family, enum tensor_role role)
{
	for (const struct family_tensor *t = family->tensors; t->role != ROLE_COUNT; t++)
		if (t->role == role && (!t->set || t->set == c->tensor_set))
			return c->offers[role];
	return 0;
}

static void head_drop(struct model_config *c)
{
	for (int role = ROLE_DENSE1_W; role <= ROLE_CLASS_B; role++)
		c->has[role] = 0;
	c->has[ROLE_HEAD_W] = c->has[ROLE_HEAD_B] = 0;
	c->logit_divisor = c->logit_cap = 0; /* of the vocabulary's logits */
	c->tied = 0;
	c->pooling = (struct pooling){0};
}

static void layer_add(struct pooling *p, enum pool_layer_kind kind, enum tensor_role weight,
        enum act_kind act, int64_t in, int64_t out)
{
	p->layer[p->layer_count++] = (struct pool_layer){.kind = kind,
	        .weight = (int)weight,
	        .bias = (int)weight + 1,
	        .act = act,
	        .in = in,
	        .out = out};
}

void config_words(struct model_config *c, enum act_kind act)
{
	c->words_tied = c->tied;
	c->words_act = act;
	c->tied = 0;
}

static void words_give(struct model_config *c, const struct model_family *family)
{
	c->has[ROLE_CLASS_W] = c->has[ROLE_CLASS_B] = 0;
	c->has[ROLE_HEAD_W] = 1;
	c->has[ROLE_HEAD_B] = (uint8_t)head_has(c, family, ROLE_HEAD_B);
	c->tied = c->words_tied;
}

/* A family without layers of its own for it has one matrix, `score`, behind the last token, or with a bias
 * behind each. */
void model_config_classify(
        struct model_config *c, const struct model_family *family, int head, int64_t labels)
{
	int own;

	head_drop(c);
	c->labels = labels;
	c->is_classifier = head;
	c->tensor_set = c->is_encoder ? head : c->tensor_set;
	for (int role = ROLE_POOL_W; role <= ROLE_CLASS_B; role++)
		c->has[role] = (uint8_t)head_has(c, family, (enum tensor_role)role);
	if (head == HEAD_OF_WORDS) {
		words_give(c, family);
		return;
	}
	own = c->has[ROLE_CLASS_W];
	c->has[ROLE_CLASS_W] = 1;
	c->has[ROLE_CLASS_B] = (uint8_t)(c->has[ROLE_CLASS_B] || (head == HEAD_OF_TOKENS && !own));
	if (head == HEAD_OF_TOKENS)
		return;
	c->pooling.mode[c->pooling.mode_count++] = own ? c->class_pool : POOL_LASTTOKEN;
	if (c->has[ROLE_POOL_W])
		layer_add(&c->pooling, POOL_LAYER_DENSE, ROLE_POOL_W, c->pool_act, c->C, c->C);
	if (c->has[ROLE_POOL_NORM_W])
		layer_add(&c->pooling, POOL_LAYER_NORM, ROLE_POOL_NORM_W, ACT_LINEAR, c->C, c->C);
	layer_add(&c->pooling, POOL_LAYER_DENSE, ROLE_CLASS_W, ACT_LINEAR, c->C, labels);
}

/* Gives the Dense layers, which have no roles yet, the DENSE ones in their order. */
static void dense_name(struct model_config *c)
{
	int role = ROLE_DENSE1_W;

	for (int l = 0; l < c->pooling.layer_count; l++) {
		struct pool_layer *layer = &c->pooling.layer[l];

		if (layer->kind != POOL_LAYER_DENSE)
			continue;
		layer->weight = role;
		layer->bias = role + 1;
		c->has[role] = 1;
		c->has[role + 1] = (uint8_t)(layer->has_bias != 0);
		role += 2;
	}
}

int model_pool(struct model *model, const struct pooling *pooling)
{
	struct model_config config = model->config;

	head_drop(&config);
	config.pooling = *pooling;
	config.is_classifier = 0;
	config.labels = 0;
	dense_name(&config);
	return model_rebuild(model, &config);
}

int model_classify(struct model *model, int head, int64_t labels)
{
	struct model_config config = model->config;

	model_config_classify(&config, model->family, head, labels);
	return model_rebuild(model, &config);
}

/* ---- tensors ---- */

int64_t model_pool_dim(const struct model_config *c, enum model_dim dim, enum tensor_role role)
{
	if (dim == DIM_LABELS)
		return c->labels;
	for (int l = 0; l < c->pooling.layer_count; l++) {
		const struct pool_layer *layer = &c->pooling.layer[l];

		if (layer->kind == POOL_LAYER_DENSE &&
		        (layer->weight == (int)role || layer->bias == (int)role))
			return dim == DIM_DENSE_OUT ? layer->out : layer->in;
	}
	return 0;
}

int model_pool_tensors(struct model *model, uint64_t *total)
{
	const struct pooling *p = &model->config.pooling;
	int err = 0;

	for (int l = 0; l < p->layer_count && !err; l++) {
		const struct pool_layer *layer = &p->layer[l];

		for (int i = 0; i < 2 && *layer->folder && layer->kind == POOL_LAYER_DENSE && !err; i++)
			if (!i || layer->has_bias)
				err = model_tensor_put(model,
				        (enum tensor_role)(i ? layer->bias : layer->weight), -1,
				        mem_printf("%s.linear.%s", layer->folder, i ? "bias" : "weight"),
				        total);
	}
	if (!err && model->config.has[ROLE_CLASS_W] && model_tensor_of(model, ROLE_CLASS_W, -1) < 0)
		err = model_tensor_put(model, ROLE_CLASS_W, -1, mem_strdup("score.weight"), total);
	if (!err && model->config.has[ROLE_CLASS_B] && model_tensor_of(model, ROLE_CLASS_B, -1) < 0)
		err = model_tensor_put(model, ROLE_CLASS_B, -1, mem_strdup("score.bias"), total);
	return err;
}
