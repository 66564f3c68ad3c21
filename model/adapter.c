/* Finds the matrices that get adapters, and adds their tensors. */
#include "model/adapter.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"

#include <inttypes.h>
#include <string.h>

static const char all_linear[] = "all-linear";

/* Whether `name`, of a module or its last parts, is that of the tensor's module. */
static int names_module(const char *name, const struct model_tensor *t)
{
	size_t len = strlen(name), whole = (size_t)(strrchr(t->name, '.') - t->name); /* without ".weight" */

	return len && len <= whole && !strncmp(t->name + whole - len, name, len) &&
	       (len == whole || t->name[whole - len - 1] == '.');
}

/* "q_proj, k_proj": the modules of block 0 that can have adapters. */
static void list_modules(struct str *out, const struct model *model)
{
	for (int i = 0; i < model->tensor_count; i++) {
		const struct model_tensor *t = &model->tensors[i];
		const char *end = strrchr(t->name, '.'), *begin = end;

		if (t->layer != 0 || role_adapter(t->role) == ROLE_COUNT)
			continue;
		while (begin > t->name && begin[-1] != '.')
			begin--;
		str_printf(out, "%s%.*s", out->len_bytes ? ", " : "", (int)(end - begin), begin);
	}
}

static int fail_name(const struct model *model, const char *name, int is_other)
{
	struct str modules = {0};
	int err;

	list_modules(&modules, model);
	err = str_check(&modules) ? ERR_NOMEM
	                          : err_set(ERR_INPUT, "%.80s: %s: %s", name,
	                                    is_other ? "only the matrices of blocks can have adapters"
	                                             : "the model has no such module; it has",
	                                    modules.data ? modules.data : "");
	str_free(&modules);
	return err;
}

/* Marks the matrices that `name` means. ERR_INPUT if it means none. */
static int mark_matches(char *chosen, const struct model *model, const char *name)
{
	int is_all = !strcmp(name, all_linear), found = 0, others = 0;
	const char *own = model_text_name(model, name);

	for (int i = 0; i < model->tensor_count; i++) {
		const struct model_tensor *t = &model->tensors[i];

		if (!is_all && !names_module(own, t))
			continue;
		if (role_adapter(t->role) == ROLE_COUNT) {
			others = 1;
			continue;
		}
		chosen[i] = 1;
		found = 1;
	}
	return found ? 0 : fail_name(model, name, others);
}

/* "a,b"; no name of a module holds a comma or a blank. */
static int mark_commas(char *chosen, const struct model *model, const char *targets)
{
	static const char between[] = ", ";
	const char *p = targets + strspn(targets, between);
	int err = *p ? 0 : mark_matches(chosen, model, targets);

	while (*p && !err) {
		size_t len = strcspn(p, between);
		char *name = mem_strndup(p, len);

		err = name ? mark_matches(chosen, model, name) : ERR_NOMEM;
		mem_free(name);
		p += len;
		p += strspn(p, between);
	}
	return err;
}

static int mark_all(char *chosen, const struct model *model, const char *targets)
{
	json_t *list = NULL;
	const json_t *item;
	size_t i;
	int err = 0;

	if (*targets != '[')
		return mark_commas(chosen, model, targets);
	err = json_parse(&list, "target modules", targets, strlen(targets));
	json_array_foreach(list, i, item) if (!err) err =
	        json_is_string(item) ? mark_matches(chosen, model, json_string_value(item))
	                             : err_set(ERR_INPUT, "an entry is not a name");
	if (!err && !json_array_size(list))
		err = err_set(ERR_INPUT, "the list is empty");
	json_decref(list);
	return err;
}

/* Gives adapters to the roles of the chosen matrices, which must be those of all blocks. */
static int set_roles(struct model_config *config, const struct model *model, const char *chosen)
{
	int64_t count[ROLE_COUNT] = {0};

	for (int i = 0; i < model->tensor_count; i++)
		count[model->tensors[i].role] += chosen[i] != 0;
	for (int role = 0; role < ROLE_COUNT; role++) {
		int a = (int)role_adapter((enum tensor_role)role);

		if (count[role] && count[role] != config->L)
			return err_set(ERR_INPUT,
			        "adapters for %" PRId64 " of %" PRId64
			        " blocks are not supported; name modules of all blocks",
			        count[role], config->L);
		if (count[role])
			config->has[a] = config->has[a + 1] = 1;
	}
	return 0;
}

int model_adapt(struct model *model, const struct adapter_options *o)
{
	struct model_config changed = model->config;
	char *chosen = mem_alloc((size_t)model->tensor_count, 1);
	int err = chosen ? mark_all(chosen, model, o->targets) : ERR_NOMEM;

	changed.adapter.rank = o->rank;
	changed.adapter.scale = o->scale;
	if (!err)
		err = set_roles(&changed, model, chosen);
	mem_free(chosen);
	return err ? err : model_rebuild(model, &changed);
}

int model_tensor_is_adapter(const struct model_tensor *tensor)
{
	return role_facts[tensor->role].kind == KIND_ADAPTER;
}

int model_adapter_of(const struct model *model, int tensor)
{
	const struct model_tensor *t = &model->tensors[tensor];
	enum tensor_role a = role_adapter(t->role);

	return a == ROLE_COUNT ? -1 : model_tensor_of(model, a, t->layer);
}

int model_matrix_is_turned(const struct model *model, const struct model_tensor *matrix)
{
	enum role_kind kind = role_facts[matrix->role].kind;

	return model->config.weight_in_out && (kind == KIND_MATRIX || kind == KIND_RESIDUAL);
}

int model_base_open(struct model **base, const struct model *model)
{
	struct model_config config = model->config;
	struct model *m = mem_alloc(1, sizeof(*m));
	int err;

	*base = NULL;
	if (!m)
		return ERR_NOMEM;
	for (int role = 0; role < ROLE_COUNT; role++)
		if (role_facts[role].kind == KIND_ADAPTER)
			config.has[role] = 0;
	config.adapter.rank = 0;
	*m = *model;
	err = model_rebuild_copy(m, &config);
	if (err)
		mem_free(m);
	else
		*base = m;
	return err;
}

void model_base_close(struct model *base)
{
	if (base)
		model_tables_free(base);
	mem_free(base);
}
