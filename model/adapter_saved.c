/* Modules that train whole beside adapters, and tensors that an adapter's files have values for. */
#include "model/adapter_parts.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/adapter.h"
#include "model/family.h"
#include "model/module_names.h"

#include <string.h>

static int ends_with(const void *end, const char *name)
{
	return str_ends_with(name, end);
}

/* Whether one of a tensor's modules has such a name: PEFT compares the ends of names, so "norm" means
 * "input_layernorm" too. 1, 0, ERR_*. */
static int has_module(const struct model *model, const char *tensor, const char *name)
{
	int fits = 0;

	for (const char *dot = strchr(tensor, '.'); dot && !fits; dot = strchr(dot + 1, '.')) {
		char *module = mem_strndup(tensor, (size_t)(dot - tensor));

		fits = module ? adapter_name_fits(model, module, ends_with, name) : ERR_NOMEM;
		mem_free(module);
	}
	return fits;
}

/* Whether the tensor is of a module with such a name, or of one within it; also by the names of
 * transformers 5. 1, 0, ERR_*. */
static int is_within(const struct model *model, const char *name, int tensor)
{
	const struct model_tensor *t = &model->tensors[tensor];
	int fits = t->role == ROLE_HEAD_W ? adapter_means_head(model, name, NULL) : 0;

	if (!fits)
		fits = has_module(model, t->name, name);
	if (!fits && model->family->renames) {
		char *parameter = model_parameter_name(model, tensor);

		fits = parameter ? has_module(model, parameter, name) : ERR_NOMEM;
		mem_free(parameter);
	}
	return fits;
}

int adapter_check_tied(const struct model *model, const char *name, int is_one_of_them)
{
	if (!is_one_of_them || !model_ties_head(model))
		return 0;
	return err_set(ERR_UNSUPPORTED,
	        "%.80s: the model ties its embedding to its head, "
	        "one tensor where PEFT trains a copy of one of them; untie them first: "
	        "save the model with transformers and tie_word_embeddings=False",
	        name);
}

/* Marks the tensors of modules that have such a name. 1: there are some; 0; ERR_UNSUPPORTED: an embedding
 * that the head reads too. */
static int mark_saved_name(char *marked, const struct model *model, const char *name)
{
	int found = model->config.tied ? adapter_means_head(model, model_text_name(name), NULL) : 0;
	int is_tied = found;

	for (int t = 0; t < model->tensor_count && found >= 0; t++) {
		const struct model_tensor *tensor = &model->tensors[t];
		int fits = model_tensor_is_adapter(tensor) ? 0 : is_within(model, name, t);

		if (fits)
			found = fits;
		if (fits <= 0)
			continue;
		is_tied |= tensor->role == ROLE_EMBED && model->config.tied;
		marked[t] = 1;
	}
	is_tied = found > 0 ? adapter_check_tied(model, name, is_tied) : 0;
	return is_tied < 0 ? is_tied : found;
}

/* Marks the tensors of modules that train whole. Names that fit none are treated as those of targets. */
static int mark_saved(char *marked, const struct model *model, const struct adapter_options *o, int may_warn)
{
	size_t count = json_is_array(o->saved) ? json_array_size(o->saved) : 1;
	const char *missing = NULL;
	int is_any = 0;

	for (size_t i = 0; i < count; i++) {
		const json_t *item = json_is_array(o->saved) ? json_array_get(o->saved, i) : o->saved;
		const char *name = json_string_value(item);
		int found;

		if (!name || !*name)
			return err_set(ERR_INPUT, "neither a name nor a list of names");
		found = mark_saved_name(marked, model, name);
		if (found < 0)
			return found;
		is_any |= found;
		missing = found ? missing : name;
	}
	if (missing && !is_any && o->is_asked)
		return err_set(ERR_INPUT, "%.80s: the model has no such module", missing);
	if (missing && o->is_asked && may_warn)
		log_warn("%s: the model has no module %.80s", o->called.saved, missing);
	return 0;
}

/* A module that trains whole has no adapter, as in PEFT. */
int adapter_drop_saved(char *chosen, const struct model *model, const struct adapter_options *o)
{
	char *marked = mem_alloc((size_t)model->tensor_count, 1);
	int err = marked ? mark_saved(marked, model, o, 1) : ERR_NOMEM;

	for (int t = 0; t < model->tensor_count && !err; t++)
		if (marked[t])
			chosen[t] = 0;
	mem_free(marked);
	return err;
}

int adapter_set_saved(struct model *model, const struct adapter_options *o)
{
	char *marked = mem_alloc((size_t)model->tensor_count, 1);
	int err = marked ? mark_saved(marked, model, o, 0) : ERR_NOMEM;

	for (int t = 0; t < model->tensor_count && !err; t++)
		if (marked[t])
			model->tensors[t].in_adapter = IN_ADAPTER_PART;
	mem_free(marked);
	return err;
}

void model_give(struct model *model, int tensor)
{
	model->tensors[tensor].in_adapter = IN_ADAPTER_GIVEN;
	model->tensors[tensor].storage = FORMAT_F32; /* the model's files may have a smaller one */
}

int adapter_set_given(struct model *model, const json_t *names)
{
	for (size_t i = 0; i < json_array_size(names); i++) {
		const char *name = json_string_value(json_array_get(names, i));
		int t = name ? model_find_tensor(model, name) : -1;

		if (t < 0)
			return err_set(ERR_INPUT, "%.80s: the model has no such tensor", name ? name : "");
		model_give(model, t);
	}
	return 0;
}
