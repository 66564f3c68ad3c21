/* Builds the stages of a model and their groups from its config and its tensors. */
#include "model/tables.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

/* The stages of a block, or the one stage outside of blocks. */
struct stage_list {
	struct block_stage stage[BLOCK_STAGES_MAX];
	int count;
	int is_divided; /* 1: its last is ROUTER, and a PART for each part of the experts and SUM follow */
};

/* Whether a tensor is reason enough for its stage. Norms and biases of kinds without a matrix belong to the
 * kinds that stand in for these. */
static int makes_stage(enum tensor_role role)
{
	enum role_kind kind = role_facts[role].kind;

	return kind == KIND_MATRIX || kind == KIND_RESIDUAL || kind == KIND_TABLE || kind == KIND_ROWS ||
	       kind == KIND_SCALAR;
}

/* Whether there is a tensor for the kind of stage, in the block or outside of blocks: one that is reason
 * enough, or any. */
enum need { NEED_REASON, NEED_ANY };
static int has_tensor(const uint8_t *has, enum stage_kind kind, enum need need)
{
	for (int role = 0; role < ROLE_COUNT; role++)
		if (has[role] && role_facts[role].stage == kind &&
		        (need == NEED_ANY || makes_stage((enum tensor_role)role)))
			return 1;
	return 0;
}

/* The stages of a block: those that its family lists, else those whose matrices or scalars it has. */
static void block_stages(struct stage_list *list, const struct block_config *b)
{
	list->count = b->stage_count;
	memcpy(list->stage, b->stage, sizeof(b->stage));
	for (int kind = 0; kind < STAGE_COUNT && !b->stage_count; kind++)
		if (stage_facts[kind].scope == SCOPE_BLOCK &&
		        has_tensor(b->has, (enum stage_kind)kind, NEED_REASON))
			list->stage[list->count++] = (struct block_stage){.kind = (enum stage_kind)kind};
}

/* The stage of the list that reads a role's tensor. STAGE_COUNT: none. */
static enum stage_kind stage_of_role(const struct stage_list *list, enum tensor_role role)
{
	enum stage_kind wanted = role_facts[role].stage, found = STAGE_COUNT;

	if (wanted == STAGE_EXPERTS && list->is_divided)
		return role_is_of_each_expert(role) ? STAGE_PART : STAGE_ROUTER;
	for (int i = 0; i < list->count; i++) {
		enum stage_kind kind = list->stage[i].kind;

		if (kind == wanted)
			return kind;
		if (found == STAGE_COUNT && stage_facts[kind].stands_in == wanted)
			found = kind;
	}
	return found;
}

static void group_begin(struct model *model, int layer, int part)
{
	model->block_group_count += layer >= 0;
	model->groups[model->group_count++] =
	        (struct model_group){.first_stage = model->stage_count, .layer = layer, .part = part};
	model->groups[model->group_count - 1].first = model->groups[model->group_count - 1].last =
	        model->group_count - 1;
}

static void stage_add(
        struct model *model, int **next, const struct stage_list *list, enum stage_kind kind, int layer)
{
	int s = model->stage_count++;
	struct model_stage *stage = &model->stages[s];

	*stage = (struct model_stage){
	        .kind = kind, .layer = layer, .group = model->group_count - 1, .tally = -1, .tensor = *next};
	if (kind == STAGE_EXPERTS || kind == STAGE_ROUTER)
		stage->tally = model->tally_layers++;
	model->groups[stage->group].count++;
	for (int i = 0; i < ROLE_COUNT; i++) {
		enum tensor_role role =
		        i == ROLE_HEAD_W && model->config.tied ? ROLE_EMBED : (enum tensor_role)i;
		int tensor = model_tensor_of(model, role, layer);

		if (tensor < 0 || stage_of_role(list, (enum tensor_role)i) != kind)
			continue;
		*(*next)++ = tensor;
		stage->tensor_count++;
		if (model->tensors[tensor].first_stage < 0)
			model->tensors[tensor].first_stage = s;
		model->tensors[tensor].last_stage = s;
	}
}

/* Adds a group for each part of the experts, the last one with their sum. They share the activations of the
 * group before. Returns the number of the block's groups. */
static int parts_add(struct model *model, int **next, const struct stage_list *list, int layer, int part)
{
	const struct experts_config *x = &model->config.block[layer].experts;
	int first = model->group_count - 1;

	for (int64_t e = 0; e < x->count; e += x->part) {
		group_begin(model, layer, part++);
		model->block_group_count--;
		model->groups[model->group_count - 1].first = first;
		stage_add(model, next, list, STAGE_PART, layer);
		model->stages[model->stage_count - 1].part = (int)(e / x->part);
	}
	stage_add(model, next, list, STAGE_SUM, layer);
	for (int g = first; g < model->group_count; g++)
		model->groups[g].last = model->group_count - 1;
	return part;
}

/* A block is one group unless its family or its experts divide it. */
static void block_add(struct model *model, int **next, int layer)
{
	struct stage_list list;
	int part = 0;

	block_stages(&list, &model->config.block[layer]);
	list.is_divided = model->config.block[layer].experts.part > 0 && list.count &&
	                  list.stage[list.count - 1].kind == STAGE_EXPERTS;
	if (list.is_divided)
		list.stage[list.count - 1].kind = STAGE_ROUTER;
	for (int i = 0; i < list.count; i++) {
		if (!i || list.stage[i].begins_group)
			group_begin(model, layer, part++);
		stage_add(model, next, &list, list.stage[i].kind, layer);
	}
	if (list.is_divided)
		part = parts_add(model, next, &list, layer, part);
	for (int i = 1; i <= part; i++)
		model->groups[model->group_count - i].parts = part;
}

static int tensors_check(const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++)
		if (model->tensors[t].first_stage < 0)
			return err_set(ERR_INTERNAL, "no stage of the model reads tensor %s",
			        model->tensors[t].name);
	return 0;
}

int model_stages_build(struct model *model)
{
	const struct model_config *c = &model->config;
	size_t most = STAGE_COUNT, tensors = (size_t)model->tensor_count + 1;
	int *next, blocks_done = 0;

	for (int64_t l = 0; l < c->L; l++) {
		const struct experts_config *x = &c->block[l].experts;
		size_t parts = x->part > 0 ? (size_t)((x->count + x->part - 1) / x->part) : 0;

		most += BLOCK_STAGES_MAX + parts + 1;
		tensors += parts * ROLE_COUNT;
	}
	model->stages = mem_alloc(most, sizeof(*model->stages));
	model->groups = mem_alloc(most, sizeof(*model->groups));
	model->stage_tensor = mem_alloc(tensors, sizeof(*model->stage_tensor));
	if (!model->stages || !model->groups || !model->stage_tensor)
		return ERR_NOMEM;
	model->stage_count = model->group_count = model->block_group_count = model->tally_layers = 0;
	next = model->stage_tensor;
	for (int kind = 0; kind < STAGE_COUNT; kind++) {
		struct stage_list one = {.stage = {{.kind = (enum stage_kind)kind}}, .count = 1};

		if (stage_facts[kind].scope == SCOPE_BLOCK) {
			for (int l = 0; l < c->L && !blocks_done; l++)
				block_add(model, &next, l);
			blocks_done = 1;
		} else if (has_tensor(c->has, (enum stage_kind)kind, NEED_ANY) ||
		           (kind == STAGE_HEAD && c->pooling.mode_count)) {
			group_begin(model, -1, 0);
			stage_add(model, &next, &one, (enum stage_kind)kind, -1);
		}
	}
	for (int g = 1; g < model->group_count; g++)
		model->groups[g].place = model->groups[g - 1].place + (model->groups[g].first == g);
	return tensors_check(model);
}
