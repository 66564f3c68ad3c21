/* Names and values of adapters of experts in PEFT's files. */
#include "checkpoint/hf/peft_experts.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "checkpoint/file/weights.h"
#include "model/adapter.h"
#include "model/adapter_parts.h"
#include "model/expert_names.h"
#include "model/family.h"
#include "model/module_names.h"

#include <string.h>

/* ---- names ---- */

static int is_stack(const struct model *model, int tensor)
{
	return expert_parts(model->tensors[tensor].role) > 0;
}

static int adapter_at(const struct model *model, int stack, int part)
{
	enum tensor_role a = expert_adapter_role(model->tensors[stack].role, part);

	return a == ROLE_COUNT ? -1 : model_tensor_of(model, a, model->tensors[stack].layer);
}

/* Whether PEFT makes something else of adapters of single experts: it wants gate and up, of one kind. */
static int halves_differ(const struct model *model, int stack)
{
	int gate = adapter_at(model, stack, 0), up = adapter_at(model, stack, 1),
	    layer = model->tensors[stack].layer;

	if (expert_parts(model->tensors[stack].role) < 2 || (gate < 0 && up < 0))
		return 0;
	return gate < 0 || up < 0 || model->tensors[gate].shape[0] != model->tensors[up].shape[0] ||
	       model->config.block[layer].adapter[model->tensors[gate].role].scale !=
	               model->config.block[layer].adapter[model->tensors[up].role].scale;
}

int peft_loads_per_expert(const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++)
		if (is_stack(model, t) && halves_differ(model, t))
			return 0;
	return !model->family->peft_drops_experts;
}

int peft_writes_fused(const struct peft_export *options, const struct model *model)
{
	if (!model->family->splits || options->experts != PEFT_EXPERTS_AUTO)
		return !model->family->splits || options->experts == PEFT_EXPERTS_FUSED;
	return model->config.adapter_by_parameter || !peft_loads_per_expert(model);
}

/* Whether the layer has an adapter of down beside this one of gate and up, which then is the inner one. */
static int is_inner(const struct model *model, int stack)
{
	int down = model_tensor_of(model, ROLE_EXPERTS_DOWN_W, model->tensors[stack].layer);

	return down >= 0 && down != stack && adapter_at(model, down, 0) >= 0;
}

/* "...mlp.experts" */
static char *module_of(const struct model *model, int stack)
{
	char *name = model_parameter_name(model, stack), *end = name ? strrchr(name, '.') : NULL;

	if (end)
		*end = 0;
	return name;
}

char *peft_fused_name(const struct model *model, int stack, int is_b)
{
	char *module = module_of(model, stack);
	char *name = module ? mem_printf("%s%s.lora_%c.weight", module,
	                              is_inner(model, stack) ? ".base_layer" : "", is_b ? 'B' : 'A')
	                    : NULL;

	mem_free(module);
	return name;
}

char *peft_expert_name(const struct model *model, int adapter)
{
	int part, stack = expert_matrix_of(model, adapter, &part);

	return model->config.adapter_by_parameter
	               ? peft_fused_name(model, stack, !role_is_a(model->tensors[adapter].role))
	               : expert_adapter_name(model, adapter, 0, 0);
}

static int is_name(const void *wanted, const char *name)
{
	return !strcmp(wanted, name);
}

/* Cuts an end off. */
static int cut(char *name, const char *end)
{
	size_t len = strlen(name), whole = strlen(end);
	int has = len > whole && !strcmp(name + len - whole, end);

	if (has)
		name[len - whole] = 0;
	return has;
}

/* Finds the stack whose adapter has the names of this module. 1, 0: none, ERR_NOMEM. */
static int stack_find(int *stack, const struct model *model, const char *module, int inner)
{
	for (int t = 0; t < model->tensor_count; t++) {
		char *own;
		int fits;

		if (!is_stack(model, t) || is_inner(model, t) != inner ||
		        adapter_at(model, t, EXPERT_WHOLE) < 0)
			continue;
		own = module_of(model, t);
		fits = own ? adapter_name_fits(model, own, is_name, module) : ERR_NOMEM;
		mem_free(own);
		*stack = t;
		if (fits)
			return fits;
	}
	return 0;
}

int peft_fused_find(struct file_ranges *ranges, int *is_b, const struct model *model, const char *name)
{
	char *module = mem_strdup(name);
	int stack = 0, found_any = 0, t, is_a = module && cut(module, ".lora_A.weight");
	const struct model_tensor *found;
	struct peft_fused_b b;

	*is_b = module && !is_a && cut(module, ".lora_B.weight");
	if (is_a || *is_b) {
		int inner = cut(module, ".base_layer");

		found_any = stack_find(&stack, model, module, inner);
	}
	if (!module)
		return ERR_NOMEM;
	mem_free(module);
	if (found_any <= 0)
		return found_any;
	t = adapter_at(model, stack, EXPERT_WHOLE) + *is_b;
	found = &model->tensors[t];
	ranges->rank = found->rank;
	memcpy(ranges->shape, found->shape, sizeof(ranges->shape));
	if (*is_b) {
		b = peft_fused_b(model, t);
		ranges->shape[0] = b.out;
		ranges->shape[1] = b.rank * b.experts;
	}
	ranges->range[0] = (struct file_range){t, 0, found->count};
	return 1;
}

/* ---- values ---- */

struct peft_fused_b peft_fused_b(const struct model *model, int tensor)
{
	const struct model_tensor *t = &model->tensors[tensor];
	int64_t experts = model->config.block[t->layer].experts.count;

	return (struct peft_fused_b){experts, t->shape[0] / experts, t->shape[1]};
}

static void part_add(struct peft_fused *f, const struct model *model, int a, int64_t out_at)
{
	const struct model_tensor *t = &model->tensors[a];
	double scale = model->config.block[t->layer].adapter[t->role].scale;
	struct peft_fused_b b = peft_fused_b(model, a + 1);

	if (!f->count)
		f->scale = scale;
	f->experts = b.experts;
	f->in = t->shape[1];
	f->part[f->count].a = a;
	f->part[f->count].rank = b.rank;
	f->part[f->count].rank_at = f->rank;
	f->part[f->count].out = b.out;
	f->part[f->count].out_at = out_at;
	f->part[f->count].factor = scale / f->scale;
	f->rank += b.rank;
	f->count++;
}

int peft_fused_of(struct peft_fused *fused, const struct model *model, int stack)
{
	const struct model_tensor *t = &model->tensors[stack];
	int parts = expert_parts(t->role), whole = adapter_at(model, stack, EXPERT_WHOLE);
	const struct experts_config *e = &model->config.block[max_i64(t->layer, 0)].experts;

	*fused = (struct peft_fused){0};
	if (!parts)
		return 0;
	if (whole >= 0)
		part_add(fused, model, whole, 0);
	for (int part = 0; part < parts && whole < 0; part++) {
		int a = adapter_at(model, stack, part);

		if (a >= 0)
			part_add(fused, model, a, part * e->F);
	}
	fused->out = t->role == ROLE_EXPERTS_DOWN_W ? experts_width(e, model->config.C) : parts * e->F;
	return fused->count;
}

/* The place of an element of a part's A or B. */
static int64_t place_of(const struct peft_fused *f, int part, int is_b, int64_t at)
{
	int64_t rank = f->part[part].rank, rank_at = f->part[part].rank_at, row;

	if (!is_b) {
		row = at / f->in;
		return (row / rank * f->rank + rank_at + row % rank) * f->in + at % f->in;
	}
	row = at / rank;
	return ((f->part[part].out_at + row % f->part[part].out) * f->rank + rank_at + at % rank) *
	               f->experts +
	       row / f->part[part].out;
}

static int part_read(float *values, const struct peft_fused *f, int part, int is_b, const struct model *model,
        const struct plane_source *source, float *piece)
{
	int tensor = f->part[part].a + is_b, err = 0;
	int64_t total = model->tensors[tensor].count;

	for (int64_t at = 0, count; at < total && !err; at += count) {
		count = min_i64(PLANE_PIECE_COUNT, total - at);
		err = weights_read(source, tensor, at, count, piece);
		for (int64_t i = 0; i < count && !err; i++)
			values[place_of(f, part, is_b, at + i)] =
			        is_b ? (float)(piece[i] * f->part[part].factor) : piece[i];
	}
	return err;
}

int peft_fused_values(float **values, const struct model *model, const struct peft_piece *piece,
        const struct plane_source *source)
{
	struct peft_fused f;
	float *room = mem_alloc(PLANE_PIECE_COUNT, sizeof(*room));
	int err = room ? 0 : ERR_NOMEM;

	peft_fused_of(&f, model, piece->stack);
	*values = mem_alloc((size_t)piece->count, sizeof(**values)); /* zeros between the parts */
	if (!*values)
		err = ERR_NOMEM;
	for (int part = 0; part < f.count && !err; part++)
		err = part_read(*values, &f, part, piece->is_b, model, source, room);
	mem_free(room);
	if (err) {
		mem_free(*values);
		*values = NULL;
	}
	return err;
}
