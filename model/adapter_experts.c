/* Finds the experts that get adapters: by their modules, one by one, or by the parameters of all. */
#include "model/adapter_parts.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/adapter.h"
#include "model/expert_names.h"
#include "model/family.h"
#include "model/module_names.h"

#include <string.h>

/* Whether `name`, of a module or its last parts, is that of the module with the `whole` bytes at `module`. */
int adapter_names_bytes(const char *name, const char *module, size_t whole)
{
	size_t len = strlen(name);

	return len && len <= whole && !strncmp(module + whole - len, name, len) &&
	       (len == whole || module[whole - len - 1] == '.');
}

/* The part of a module's name that all versions of the model's class have. */
const char *adapter_common_name(const struct model *model, const char *name)
{
	const char *modules = model->family->module_prefix;

	name = model_text_name(name);
	return modules && !strncmp(name, modules, strlen(modules)) ? name + strlen(modules) : name;
}

int adapter_expression_fits(const void *pattern, const char *name)
{
	return name_pattern_matches(pattern, name);
}

static int expression_fits_expert(const void *arg, const char *module)
{
	const struct wanted_experts *wanted = arg;

	return adapter_name_fits(wanted->model, module, adapter_expression_fits, wanted->pattern);
}

static int names_expert(const void *arg, const char *module)
{
	const struct wanted_experts *wanted = arg;
	const json_t *names = wanted->names, *name;
	size_t i;

	if (!json_is_array(names))
		return adapter_names_bytes(
		        adapter_common_name(wanted->model, json_string_value(names)), module, strlen(module));
	json_array_foreach(names, i, name)
	{
		if (json_is_string(name) &&
		        adapter_names_bytes(adapter_common_name(wanted->model, json_string_value(name)),
		                module, strlen(module)))
			return 1;
	}
	return 0;
}

static int names_some_expert(const char *name, const struct model *model, int tensor, int part)
{
	int found = 0;

	for (int64_t e = 0; e < model->tensors[tensor].shape[0] && !found; e++) {
		char *module = expert_module(model, tensor, part, e);

		if (!module)
			return 0; /* the files have no modules of experts; or the next call says what is wrong */
		found = adapter_names_bytes(name, module, strlen(module));
		mem_free(module);
	}
	return found;
}

int adapter_mark_experts(
        char *chosen, char mark, int tensor, const char *name, const struct wanted_experts *wanted)
{
	const struct model *model = wanted->model;
	int found = 0;

	for (int part = 0;
	        part < expert_parts(model->tensors[tensor].role) && strcmp(name, ADAPTER_ALL_LINEAR) != 0;
	        part++) {
		int fits;

		if (wanted->pattern)
			fits = expert_match(model, tensor, part, expression_fits_expert, wanted);
		else if (!names_some_expert(name, model, tensor, part))
			fits = 0;
		else if (((chosen[tensor] >> part) & 1) == mark)
			fits = 1; /* an earlier name saw that all are named */
		else
			fits = expert_match(model, tensor, part, names_expert, wanted);
		if (fits < 0)
			return fits;
		found |= fits;
		if (fits)
			chosen[tensor] =
			        (char)(mark ? chosen[tensor] | 1 << part : chosen[tensor] & ~(1 << part));
	}
	return found;
}

/* ---- parameters ---- */

static int name_ends(const void *end, const char *name)
{
	return adapter_names_bytes(end, name, strlen(name));
}

/* Whether the end of a name is that of the tensor, as transformers 5 calls it or as the files do. 1, 0,
 * ERR_*. */
static int names_parameter(const struct model *model, int tensor, const char *end)
{
	const struct model_tensor *t = &model->tensors[tensor];
	char *name = model_parameter_name(model, tensor);
	int fits = name ? adapter_name_fits(model, name, name_ends, end) : ERR_NOMEM;

	if (!fits)
		fits = adapter_name_fits(model, t->name, name_ends, end);
	mem_free(name);
	return fits;
}

/* The parameters of one name. *found: some can have adapters; *others: some cannot. */
static int mark_parameter(char *chosen, const struct model *model, const char *name, int *found, int *others)
{
	const char *own = adapter_common_name(model, name);

	*found = *others = 0;
	for (int t = 0; t < model->tensor_count; t++) {
		int is_stack = expert_parts(model->tensors[t].role) > 0,
		    fits = model->tensors[t].rank > 1 ? names_parameter(model, t, own) : 0;

		if (fits < 0)
			return fits;
		if (!fits)
			continue;
		if (!is_stack &&
		        (model->tensors[t].layer < 0 || !model_may_adapt(model, model->tensors[t].role))) {
			*others = 1;
			continue;
		}
		chosen[t] =
		        is_stack ? 1 << EXPERT_WHOLE : 1; /* of modules and the parameter, it is the latter */
		*found = 1;
	}
	return 0;
}

/* What can be named, once: without the number of the block. */
static void list_parameters(struct str *out, const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++) {
		const struct model_tensor *tensor = &model->tensors[t];
		char *name = expert_parts(tensor->role) ? model_parameter_name(model, t) : NULL;
		const char *end = name ? strstr(name, ".experts.") : NULL;

		if (end)
			name_list_add(out, end + 1, strlen(end + 1));
		mem_free(name);
	}
}

static int fail_parameter(const struct model *model, const char *name, int is_other)
{
	struct str names = {0};
	int err;

	list_parameters(&names, model);
	err = str_check(&names);
	if (!err && is_other)
		err = err_set(ERR_UNSUPPORTED,
		        "%.80s: an adapter of this parameter is not supported; name experts or matrices of "
		        "layers",
		        name);
	else if (!err && names.len_bytes)
		err = err_set(ERR_INPUT,
		        "%.80s: the model has no such parameter; those of its experts are %s", name,
		        names.data);
	else if (!err)
		err = err_set(ERR_INPUT, "%.80s: the model has no such parameter, and no experts", name);
	str_free(&names);
	return err;
}

int adapter_mark_parameters(char *chosen, const struct model *model, const struct adapter_options *o)
{
	const char *missing = NULL;
	const json_t *one;
	int is_any = 0;
	size_t i;

	if (!json_is_array(o->parameters))
		return err_set(ERR_INPUT, "not a list of names");
	json_array_foreach((json_t *)o->parameters, i, one)
	{
		const char *name = json_string_value(one);
		int found, others, err;

		if (!name)
			return err_set(ERR_INPUT, "an entry is not a name");
		err = mark_parameter(chosen, model, name, &found, &others);
		if (err || (others && !found))
			return err ? err : fail_parameter(model, name, 1);
		is_any |= found;
		missing = found ? missing : name;
	}
	if (missing && (!is_any || o->is_asked)) /* PEFT passes over some of a file's that are not there */
		return fail_parameter(model, missing, 0);
	return 0;
}
