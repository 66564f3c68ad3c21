/* Divides experts into parts, and their tensors into pieces. */
#include "model/experts_parts.h"

#include "base/size.h"
#include "optim/adamw_step.h"

/* Pieces begin at multiples of these: of frozen tensors, and of those with sums of squares. */
enum { FROZEN_ALIGN = 256 };

/* 1: a tensor of which each part has a piece. Small ones are whole. */
static int is_cut(const struct model_tensor *t)
{
	enum role_kind kind = role_facts[t->role].kind;

	return kind == KIND_STACK || kind == KIND_RESIDUAL_STACK;
}

int model_tensor_parts(const struct model *model, int tensor)
{
	const struct model_tensor *t = &model->tensors[tensor];

	return t->layer >= 0 && is_cut(t) && model->config.block[t->layer].experts.part
	               ? t->last_stage - t->first_stage + 1
	               : 1;
}

void model_tensor_part(const struct model *model, int tensor, int part, int64_t *first, int64_t *count)
{
	const struct model_tensor *t = &model->tensors[tensor];
	const struct experts_config *x;

	*first = 0;
	*count = t->count;
	if (model_tensor_parts(model, tensor) == 1)
		return;
	x = &model->config.block[t->layer].experts;
	*first = part * x->part * (t->count / x->count);
	*count = min_i64(x->part * (t->count / x->count), t->count - *first);
}

static int64_t gcd(int64_t a, int64_t b)
{
	return b ? gcd(b, a % b) : a;
}

/* The least multiple of `step` that, times `each`, is a multiple of `align`. */
static int64_t step_align(int64_t step, int64_t each, int64_t align)
{
	return step * (align / gcd(step * each, align));
}

/* The step for one tensor too; 0: it cannot be divided. */
static int64_t tensor_step(const struct model_tensor *t, int64_t experts, int64_t step)
{
	const struct weight_format *format = t->kept;
	int64_t each = t->count / experts;

	if (t->trainable)
		return step_align(step, each, SUMSQ_BLOCK);
	step = step_align(step, each, FROZEN_ALIGN);
	if (!format || !weight_format_is_coded(format))
		return step;
	if (format->scale == CODE_SCALE_NESTED) /* made of all scales of a tensor */
		return 0;
	return format->is_flat ? step_align(step, each, format->block_cols)
	                       : step_align(step, each / model_tensor_cols(t), format->block_rows);
}

int64_t model_experts_step(const struct model *model)
{
	const struct model_config *c = &model->config;
	int64_t step = 1, found = 0;

	for (int64_t l = 0; l < c->L; l++) {
		const struct block_config *b = &c->block[l];

		if (!b->has[ROLE_ROUTER_W])
			continue;
		/* a norm behind the experts needs their sum again in backward */
		if (b->has[ROLE_SUM_POST_NORM_W] || b->has[ROLE_EXPERTS_POST_NORM_W] ||
		        b->has[ROLE_INPUT_W] || b->has[ROLE_LAYER_SCALAR] ||
		        (b->stage_count && b->stage[b->stage_count - 1].kind != STAGE_EXPERTS))
			return 0;
		found = 1;
	}
	for (int t = 0; t < model->tensor_count && step; t++)
		if (model->tensors[t].layer >= 0 && is_cut(&model->tensors[t]))
			step = tensor_step(
			        &model->tensors[t], c->block[model->tensors[t].layer].experts.count, step);
	return found ? step : 0;
}

int model_experts_divide(struct model *model, int64_t part)
{
	struct model_config config = model->config;
	int64_t was = 0;
	int rc;

	for (int64_t l = 0; l < config.L; l++) {
		struct experts_config *x = &config.block[l].experts;

		was = x->part ? x->part : was;
		x->part = config.block[l].has[ROLE_ROUTER_W] && part < x->count ? part : 0;
	}
	rc = model_rebuild(model, &config);
	for (int64_t l = 0; l < config.L && rc; l++)
		config.block[l].experts.part = config.block[l].has[ROLE_ROUTER_W] ? was : 0;
	return rc;
}
