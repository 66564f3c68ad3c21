/* Divides experts into parts, and their tensors into pieces. */
#include "model/experts_parts.h"

#include "base/mem.h"
#include "base/size.h"
#include "model/tables.h"
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
	return format->is_flat ? step_align(step, each, weight_format_align(format))
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
		/* a norm or a matrix behind the experts needs their sum again in backward */
		if (b->has[ROLE_SUM_POST_NORM_W] || b->has[ROLE_EXPERTS_OUT_W] ||
		        b->has[ROLE_EXPERTS_POST_NORM_W] || b->has[ROLE_INPUT_W] ||
		        b->has[ROLE_LAYER_SCALAR] ||
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

static void parts_set(struct model *model, int64_t part)
{
	for (int64_t l = 0; l < model->config.L; l++) {
		struct experts_config *x = &model->config.block[l].experts;

		x->part = model->config.block[l].has[ROLE_ROUTER_W] && part < x->count ? part : 0;
	}
}

/* Which stages read each tensor, from the lists of the stages. */
static void readers_note(struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++)
		model->tensors[t].first_stage = model->tensors[t].last_stage = -1;
	for (int s = 0; s < model->stage_count; s++)
		for (int i = 0; i < model->stages[s].tensor_count; i++) {
			struct model_tensor *t = &model->tensors[model->stages[s].tensor[i]];

			t->first_stage = t->first_stage < 0 ? s : t->first_stage;
			t->last_stage = s;
		}
}

static void stages_free(struct model *model)
{
	mem_free(model->stages);
	mem_free(model->groups);
	mem_free(model->stage_tensor);
	mem_free(model->values);
	mem_free(model->stage_value);
}

int model_experts_divide(struct model *model, int64_t part)
{
	struct model was = *model;
	int64_t old = model_experts_part(model);
	int rc;

	if (part == old)
		return 0;
	parts_set(model, part);
	model->stages = NULL;
	model->groups = NULL;
	model->values = NULL;
	model->stage_tensor = model->stage_value = NULL;
	for (int t = 0; t < model->tensor_count; t++)
		model->tensors[t].first_stage = -1;
	rc = model_stages_build(model);
	if (!rc)
		rc = model_values_build(model);
	stages_free(rc ? model : &was);
	if (!rc)
		return 0;
	*model = was;
	parts_set(model, old);
	readers_note(model);
	return rc;
}

int64_t model_experts_part(const struct model *model)
{
	int64_t part = 0;

	for (int64_t l = 0; l < model->config.L; l++)
		part = max_i64(part, model->config.block[l].experts.part);
	return part;
}

/* As many experts as have this many bytes in bf16, but no less than an eighth and no more than a quarter: a
 * plan of many parts takes long to find. */
enum { PART_BYTES = 256 << 20, PARTS_LEAST = 4, PARTS_MOST = 8 };

int64_t model_experts_part_for(const struct model *model)
{
	int64_t step = model_experts_step(model), most = 0, part, experts = 0;

	for (int t = 0; t < model->tensor_count; t++)
		if (model->tensors[t].layer >= 0 && is_cut(&model->tensors[t])) {
			experts = model->config.block[model->tensors[t].layer].experts.count;
			most = max_i64(most, model->tensors[t].count / experts);
		}
	if (!step || !most)
		return 0;
	part = min_i64((PART_BYTES + 2 * most - 1) / (2 * most), (experts + PARTS_LEAST - 1) / PARTS_LEAST);
	part = max_i64(part, (experts + PARTS_MOST - 1) / PARTS_MOST);
	part = (part + step - 1) / step * step;
	return 2 * part <= experts ? part : 0;
}
