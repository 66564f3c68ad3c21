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

/* Counts the matrices of each role that `name` means. ERR_INPUT if it means none. */
static int count_matches(int64_t count[ROLE_COUNT], const struct model *model, const char *name)
{
	int is_all = !strcmp(name, all_linear);
	int64_t found = 0, others = 0;

	for (int i = 0; i < model->tensor_count; i++) {
		const struct model_tensor *t = &model->tensors[i];
		int is_adaptable = role_adapter(t->role) != ROLE_COUNT;

		if (!is_all && !names_module(name, t))
			continue;
		found += is_adaptable;
		others += !is_adaptable;
		count[t->role] += is_adaptable;
	}
	return found ? 0 : fail_name(model, name, others > 0);
}

/* "a,b"; no name of a module holds a comma or a blank. */
static int count_commas(int64_t count[ROLE_COUNT], const struct model *model, const char *targets)
{
	static const char between[] = ", ";
	const char *p = targets + strspn(targets, between);
	int err = *p ? 0 : count_matches(count, model, targets);

	while (*p && !err) {
		size_t len = strcspn(p, between);
		char *name = mem_printf("%.*s", (int)len, p);

		err = name ? count_matches(count, model, name) : ERR_NOMEM;
		mem_free(name);
		p += len;
		p += strspn(p, between);
	}
	return err;
}

static int count_all(int64_t count[ROLE_COUNT], const struct model *model, const char *targets)
{
	json_t *list = NULL;
	const json_t *item;
	size_t i;
	int err = 0;

	if (*targets != '[')
		return count_commas(count, model, targets);
	err = json_parse(&list, "target modules", targets, strlen(targets));
	json_array_foreach(list, i, item) if (!err) err =
	        json_is_string(item) ? count_matches(count, model, json_string_value(item))
	                             : err_set(ERR_INPUT, "an entry is not a name");
	if (!err && !json_array_size(list))
		err = err_set(ERR_INPUT, "the list is empty");
	json_decref(list);
	return err;
}

int model_adapt(struct model *model, const struct adapter_options *o)
{
	struct model_config changed = model->config;
	int64_t count[ROLE_COUNT] = {0};
	int err = count_all(count, model, o->targets);

	if (err)
		return err;
	changed.adapter.rank = o->rank;
	changed.adapter.scale = o->scale;
	for (int role = 0; role < ROLE_COUNT; role++) {
		if (count[role] % changed.L)
			return err_set(ERR_INPUT,
			        "adapters for %" PRId64 " of %" PRId64
			        " blocks are not supported; name modules of all blocks",
			        count[role], changed.L);
		if (count[role])
			changed.has[role_adapter((enum tensor_role)role)] =
			        changed.has[role_adapter((enum tensor_role)role) + 1] = 1;
	}
	return model_rebuild(model, &changed);
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
