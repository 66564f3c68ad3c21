/* Which matrices of a block are joined. */
#include "model/join.h"

/* [join][part], in the order in which units have them. */
static const enum tensor_role roles[JOIN_COUNT][JOIN_PARTS][JOIN_MOST] = {
        [JOIN_QKV] = {{ROLE_Q_W, ROLE_K_W, ROLE_V_W}, {ROLE_Q_B, ROLE_K_B, ROLE_V_B}},
        [JOIN_GATE_UP] = {{ROLE_GATE_W, ROLE_UP_W}, {ROLE_GATE_B, ROLE_UP_B}},
};

int join_count(enum role_join join)
{
	return join == JOIN_QKV ? 3 : 2;
}

enum tensor_role join_role(enum role_join join, enum join_part part, int n)
{
	return roles[join][part][n];
}

static const struct model_tensor *tensor_of(
        const struct model *model, int layer, enum role_join join, enum join_part part, int n)
{
	int t = model_tensor_of(model, roles[join][part][n], layer);

	return t < 0 ? NULL : &model->tensors[t];
}

/* Tensors of one kind that may lie side by side. */
static int are_alike(const struct model *model, int layer, enum role_join join, enum join_part part)
{
	const struct model_tensor *first = tensor_of(model, layer, join, part, 0);

	for (int n = 0; n < join_count(join); n++) {
		const struct model_tensor *t = tensor_of(model, layer, join, part, n);

		if (!first || !t || t->multiplied || t->trainable != first->trainable ||
		        t->first_stage != first->first_stage ||
		        (!t->trainable && (t->kept != first->kept || t->storage != first->storage ||
		                                  t->in_files != first->in_files)) ||
		        (n + 1 < join_count(join) && t->count % JOIN_ALIGN))
			return 0;
	}
	return 1;
}

/* Biases: all or none. */
int model_joins(const struct model *model, int layer, enum role_join join)
{
	int biases = 0;

	if (layer < 0 || join == JOIN_NONE)
		return 0;
	for (int n = 0; n < join_count(join); n++)
		biases += tensor_of(model, layer, join, JOIN_BIAS, n) != NULL;
	return !model->config.weight_in_out && !model->config.adapter_magnitudes &&
	       are_alike(model, layer, join, JOIN_MATRIX) &&
	       (!biases || are_alike(model, layer, join, JOIN_BIAS));
}

/* The tensors joined with this one, itself among them; 1: none. */
static int joined_tensors(int list[JOIN_MOST], const struct model *model, int tensor)
{
	const struct model_tensor *t = &model->tensors[tensor];

	for (int join = JOIN_NONE + 1; join < JOIN_COUNT; join++)
		for (int part = 0; part < JOIN_PARTS; part++)
			for (int n = 0; n < JOIN_MOST && t->layer >= 0; n++) {
				int count = join_count((enum role_join)join);

				if (n >= count || roles[join][part][n] != t->role ||
				        !model_joins(model, t->layer, (enum role_join)join))
					continue;
				for (int i = 0; i < count; i++)
					list[i] = model_tensor_of(model, roles[join][part][i], t->layer);
				return count;
			}
	list[0] = tensor;
	return 1;
}

int model_place(int list[JOIN_MOST], const struct model *model, int tensor)
{
	int count = joined_tensors(list, model, tensor);

	for (int i = 0; i < count; i++)
		if (list[i] < tensor)
			return 0;
	return count;
}
