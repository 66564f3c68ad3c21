/* Finds and makes the names of single experts' modules. */
#include "model/expert_names.h"

#include "base/err.h"
#include "base/mem.h"
#include "model/family.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char weight[] = ".weight", index_mark[] = "%d";

int expert_parts(enum tensor_role role)
{
	return role == ROLE_EXPERTS_GATE_UP_W ? 2 : role == ROLE_EXPERTS_UP_W || role == ROLE_EXPERTS_DOWN_W;
}

enum tensor_role expert_adapter_role(enum tensor_role matrix, int part)
{
	int parts = expert_parts(matrix);

	if (part == EXPERT_WHOLE && parts == 1)
		part = 0;
	return parts && (part < parts || part == EXPERT_WHOLE) ? role_adapter(matrix) + 2 * part : ROLE_COUNT;
}

int expert_is_adapter(enum tensor_role role)
{
	return role >= ROLE_EXPERTS_GATE_LORA_A && role <= ROLE_EXPERTS_DOWN_LORA_B;
}

/* The split with a part of the tensor, or NULL; *place: where the whole's name begins within the tensor's. */
static const struct family_split *split_of(const struct model *model, int tensor, int part, size_t *place)
{
	const char *name = model->tensors[tensor].name;
	size_t len = strlen(name);

	for (const struct family_split *s = model->family->splits; s && s->whole; s++) {
		size_t whole = strlen(s->whole);

		*place = len - whole;
		if (s->part == part && strstr(s->piece, index_mark) && len > whole &&
		        !strcmp(name + *place, s->whole))
			return s;
	}
	return NULL;
}

char *expert_module(const struct model *model, int tensor, int part, int64_t index)
{
	size_t place;
	const struct family_split *s = split_of(model, tensor, part, &place);
	const char *mark = s ? strstr(s->piece, index_mark) : NULL, *rest;
	int end;

	if (!s)
		return NULL;
	rest = mark + strlen(index_mark);
	end = (int)(strlen(rest) - strlen(weight));
	if (index < 0) /* without the number and a dot */
		return mem_printf("%.*s%.*s%.*s", (int)place, model->tensors[tensor].name,
		        (int)(mark - s->piece), s->piece, end - 1, rest + 1);
	return mem_printf("%.*s%.*s%lld%.*s", (int)place, model->tensors[tensor].name, (int)(mark - s->piece),
	        s->piece, (long long)index, end, rest);
}

/* The tensor's name without ".weight". */
static int stem_of(const char *name)
{
	size_t len = strlen(name), end = strlen(weight);

	return (int)(len > end && !strcmp(name + len - end, weight) ? len - end : len);
}

char *expert_table_module(const struct model *model, int tensor, int part)
{
	const char *name = model->tensors[tensor].name;
	size_t place;

	if (part != EXPERT_WHOLE && split_of(model, tensor, part, &place))
		return expert_module(model, tensor, part, -1);
	return mem_printf("%.*s", stem_of(name), name);
}

int expert_match(const struct model *model, int tensor, int part,
        int (*fits)(const void *arg, const char *module), const void *arg)
{
	int64_t count = model->tensors[tensor].shape[0], found = 0;
	size_t place;

	if (!split_of(model, tensor, part, &place))
		return 0;
	for (int64_t e = 0; e < count; e++) {
		char *module = expert_module(model, tensor, part, e);
		int one = module ? fits(arg, module) : ERR_NOMEM;

		mem_free(module);
		if (one < 0)
			return one;
		found += one;
	}
	return !found || found == count ? found > 0
	                                : err_set(ERR_INPUT,
	                                          "only %" PRId64 " of %" PRId64
	                                          " experts of %s would have an adapter; name all",
	                                          found, count, model->tensors[tensor].name);
}

int expert_matrix_of(const struct model *model, int adapter, int *part)
{
	enum tensor_role role = model->tensors[adapter].role;
	int layer = model->tensors[adapter].layer, ungated = model_tensor_of(model, ROLE_EXPERTS_UP_W, layer);
	int is_up = role == ROLE_EXPERTS_UP_LORA_A || role == ROLE_EXPERTS_UP_LORA_B,
	    is_both = role == ROLE_EXPERTS_GATE_UP_LORA_A || role == ROLE_EXPERTS_GATE_UP_LORA_B;

	*part = is_both ? EXPERT_WHOLE : is_up && ungated < 0;
	if (role >= ROLE_EXPERTS_DOWN_LORA_A)
		return model_tensor_of(model, ROLE_EXPERTS_DOWN_W, layer);
	return ungated >= 0 ? ungated : model_tensor_of(model, ROLE_EXPERTS_GATE_UP_W, layer);
}

char *expert_adapter_name(const struct model *model, int adapter, int part, int64_t index)
{
	int own, matrix = expert_matrix_of(model, adapter, &own);
	char *module = expert_module(model, matrix, own == EXPERT_WHOLE ? part : own, index), *name;

	name = module ? mem_printf("%s.%s.weight", module,
	                        role_is_a(model->tensors[adapter].role) ? "lora_A" : "lora_B")
	              : NULL;
	mem_free(module);
	return name;
}

char *expert_name_at(const struct model *model, int tensor, int64_t element)
{
	const struct model_tensor *t = &model->tensors[tensor];
	int parts = expert_parts(t->role);
	int64_t each;
	char *module, *name;

	if (!parts && !expert_is_adapter(t->role))
		return NULL;
	each = t->count / model->config.block[t->layer].experts.count;
	if (!parts)
		return expert_adapter_name(model, tensor, 0, element / each);
	module = expert_module(model, tensor, (int)(element % each / (each / parts)), element / each);
	name = module ? mem_printf("%s%s", module, weight) : NULL;
	mem_free(module);
	return name;
}

/* The name without the number of an expert; *index is that number, -1: there is none. */
static char *without_number(const char *name, int64_t *index)
{
	const char *at = strstr(name, ".experts."), *digits = at ? at + strlen(".experts.") : NULL;
	size_t count = digits ? strspn(digits, "0123456789") : 0;

	*index = -1;
	if (!count || count > 9 || digits[count] != '.')
		return NULL;
	*index = strtol(digits, NULL, 10);
	return mem_printf("%.*s%s", (int)(digits - name), name, digits + count + 1);
}

int expert_adapter_find(const struct model *model, const char *name, int64_t *index)
{
	char *whole = without_number(name, index);
	int tensor = whole ? model_find_tensor(model, whole) : -1;

	mem_free(whole);
	if (tensor < 0 || !expert_is_adapter(model->tensors[tensor].role) ||
	        *index >= model->config.block[model->tensors[tensor].layer].experts.count)
		return -1;
	return tensor;
}
