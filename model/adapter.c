/* Finds the matrices that get adapters, and adds their tensors. */
#include "model/adapter.h"

#include "model/adapter_layers.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/str.h"
#include "model/adapter_parts.h"
#include "model/expert_names.h"
#include "model/family.h"
#include "model/module_names.h"
#include "model/name_pattern.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char all_linear[] = ADAPTER_ALL_LINEAR;

static int names_module(const char *name, const struct model_tensor *t)
{
	return adapter_names_bytes(
	        name, t->name, (size_t)(strrchr(t->name, '.') - t->name)); /* without ".weight" */
}

int adapter_fail_name(const struct model *model, const char *name, int is_other)
{
	struct str modules = {0};
	int err;

	model_list_modules(&modules, model, 0);
	err = str_check(&modules) ? ERR_NOMEM
	                          : err_set(ERR_INPUT, "%.80s: %s: %s", name,
	                                    is_other ? "it cannot have an adapter; these can"
	                                             : "the model has no such module; it has",
	                                    modules.data ? modules.data : "");
	str_free(&modules);
	return err;
}

/* The module of a tensor: its name, of a head as in transformers 5, without ".weight" (mem_free). */
static char *module_of(const struct model *model, const struct model_tensor *t)
{
	const char *head = t->role == ROLE_HEAD_W ? model->family->head_alias : NULL,
	           *name = head ? head : t->name;

	return mem_strndup(name, (size_t)(strrchr(name, '.') - name));
}

/* ---- names and expressions ---- */

static int is_expression(const char *text)
{
	return strpbrk(text, "\\^$*+?()[]{}|") != NULL;
}

/* Names between commas; no name of a module holds a comma or a blank. */
static int split_names(json_t **names, const char *text)
{
	static const char between[] = ", ";

	*names = json_array();
	for (const char *p = text + strspn(text, between); *p; p += strspn(p, between)) {
		size_t len = strcspn(p, between);

		if (json_array_append_new(*names, json_stringn(p, len)))
			return ERR_NOMEM;
		p += len;
	}
	if (*names && !json_array_size(*names))
		return err_set(ERR_INPUT, "no module is named");
	return *names ? 0 : ERR_NOMEM;
}

double adapter_scale(const struct adapter_options *o)
{
	return !o->rank ? 0 : o->alpha / (o->use_rslora ? sqrt((double)o->rank) : (double)o->rank);
}

int adapter_targets(json_t **targets, const char *text)
{
	*targets = NULL;
	if (*text == '[')
		return json_parse(targets, "target modules", text, strlen(text));
	if (!is_expression(text))
		return split_names(targets, text);
	*targets = json_of_text(text);
	return *targets ? 0 : ERR_NOMEM;
}

/* Whether a name of the module fits: its own, that of transformers 5 or, in a whole model, one of its
 * versions' names. 1, 0, ERR_*. */
int adapter_name_fits(const struct model *model, const char *module,
        int (*fits)(const void *wanted, const char *name), const void *wanted)
{
	const char *in_base = strncmp(module, "model.", 6) ? module : module + 6;
	int found = fits(wanted, module);
	size_t len = strlen(model->prefix);

	if (!found && model->family->module_prefix && !strncmp(module, model->prefix, len)) {
		char *name = mem_printf("%s%s", model->family->module_prefix, module + len);

		found = name ? fits(wanted, name) : ERR_NOMEM;
		mem_free(name);
	}
	for (const char *const *prefix = model_text_prefixes; model->whole && *prefix && !found; prefix++)
		for (int i = 0; i < 2 && !found; i++) {
			char *name = mem_printf("%s%s", *prefix, i ? in_base : module);

			found = name ? fits(wanted, name) : ERR_NOMEM;
			mem_free(name);
		}
	return found;
}

/* Whether a name or an expression means the head, also where a tied model has no tensor for it, or by the
 * name that transformers has for its module. 1, 0, ERR_*. */
int adapter_means_head(const struct model *model, const char *name, const struct name_pattern *pattern)
{
	const char *const heads[] = {family_head_name(model->family), model->family->head_alias};
	int found = 0;

	for (int i = 0; i < 2 && !found; i++) {
		char *module =
		        heads[i] ? mem_strndup(heads[i], (size_t)(strrchr(heads[i], '.') - heads[i])) : NULL;

		if (heads[i])
			found = !module   ? ERR_NOMEM
			        : pattern ? name_pattern_matches(pattern, module)
			                  : !strcmp(name, module);
		mem_free(module);
	}
	return found;
}

/* PEFT adapts no module of this kind. Files of adapters may be older than these modules. */
static int fail_router(const struct model *model, int tensor, const char *name)
{
	char *parameter = model_parameter_name(model, tensor);
	int err = parameter ? err_set(ERR_UNSUPPORTED,
	                              "%.80s: PEFT adapts a router by its weight; name that in "
	                              "lora_target_parameters, as %s",
	                              name, parameter)
	                    : ERR_NOMEM;

	mem_free(parameter);
	return err;
}

/* Sets `chosen` of the matrices that a name or an expression, one of the options', means to `mark`, and
 * *found, if it means any. ERR_INPUT: it means modules that cannot have adapters. "all-linear" means no
 * router. */
static int mark_matches(char *chosen, char mark, int *found, const struct model *model, const char *name,
        const struct adapter_options *o)
{
	int is_all = !strcmp(name, all_linear), others = 0, is_head = 0, err = 0;
	const json_t *names = mark ? o->targets : o->exclude;
	const char *own = adapter_common_name(model, name);
	struct name_pattern *pattern = NULL;

	if (!is_all && is_expression(name))
		err = name_pattern_open(&pattern, NULL, name);
	if (!err && !is_all)
		is_head = adapter_means_head(model, own, pattern);
	if (!err)
		err = is_head < 0 || !mark ? min_i64(is_head, 0) : adapter_check_tied(model, name, is_head);
	for (int i = 0; i < model->tensor_count && !err; i++) {
		const struct model_tensor *t = &model->tensors[i];
		int is_stack = expert_parts(t->role), fits;
		int has_module = !is_stack && (t->rank > 1 || role_facts[t->role].kind == KIND_NORM);
		char *module = pattern && has_module ? module_of(model, t) : NULL;

		if (is_stack)
			fits = adapter_mark_experts(
			        chosen, mark, i, own, &(struct wanted_experts){model, pattern, names});
		else if (is_head && t->role == ROLE_HEAD_W)
			fits = 1;
		else if (pattern)
			fits = module ? adapter_name_fits(model, module, adapter_expression_fits, pattern)
			       : has_module ? ERR_NOMEM
			                    : 0;
		else
			fits = is_all ? t->layer >= 0 && t->role != ROLE_ROUTER_W : names_module(own, t);
		mem_free(module);
		if (fits < 0)
			err = fits;
		else if (is_stack)
			*found |= fits;
		else if (fits && mark && t->role == ROLE_EMBED)
			err = adapter_check_tied(model, name, 1);
		else if (fits && mark && o->is_asked && model_is_parameter(model, t->role))
			err = fail_router(model, i, name);
		if (fits <= 0 || is_stack || err)
			continue;
		if (!model_may_adapt(model, t->role))
			others = 1;
		else
			chosen[i] = mark, *found = 1;
	}
	name_pattern_close(pattern);
	if (!err && is_all && mark && model->family->woven)
		log_warn("%s: layers of linear attention get an adapter on out_proj only: "
		         "the files weave the rows of their other matrices",
		        all_linear);
	*found |= !mark && (others || is_head > 0); /* a tied model has no tensor for its head */
	if (err || is_all || !mark || !others)
		return err;
	return *found && !is_expression(name) ? 0 : adapter_fail_name(model, name, 1);
}

/* Names that mean no module of this model. Lists for several models have some, and PEFT passes over them: it
 * is an error if nothing else is there. Of a user's list, a warning; an exclusion that excludes nothing is a
 * slip. */
static int check_missing(const struct model *model, const struct str *missing, int is_any, int is_target,
        const struct adapter_options *o)
{
	struct str modules = {0};
	int err = str_check(missing);

	if (err || !missing->len_bytes || (!is_target && (model->whole || !o->is_asked)))
		return err;
	if (!is_any || !is_target)
		return adapter_fail_name(model, missing->data, 0);
	if (!o->is_asked)
		return 0;
	model_list_modules(&modules, model, 0);
	err = str_check(&modules);
	if (!err)
		log_warn("%s: the model has no module %s; it has %s", o->called.targets, missing->data,
		        modules.data);
	str_free(&modules);
	return err;
}

/* A name, an expression, or an array of names: targets, or what is excluded. */
static int mark_all(char *chosen, int is_target, const struct model *model, const json_t *names,
        const struct adapter_options *o)
{
	size_t count = json_is_array(names) ? json_array_size(names) : 1;
	struct str missing = {0};
	int is_any = 0, err = 0;

	if (!json_is_array(names) && !json_is_string(names))
		return err_set(ERR_INPUT, "neither a name nor a list of names");
	if (!count)
		return err_set(ERR_INPUT, "the list is empty");
	for (size_t i = 0; i < count && !err; i++) {
		const char *name = json_string_value(json_is_array(names) ? json_array_get(names, i) : names);
		int found = 0;

		if (!name)
			err = err_set(ERR_INPUT, "an entry is not a name");
		else if (json_is_array(names) && is_expression(name))
			err = err_set(ERR_INPUT,
			        "%.80s: an expression stands alone, not in a list; name modules", name);
		else
			err = mark_matches(chosen, (char)is_target, &found, model, name, o);
		if (!err && !found && strcmp(name, all_linear) != 0)
			str_printf(&missing, "%s%.80s", missing.len_bytes ? ", " : "", name);
		is_any |= found;
	}
	if (!err)
		err = check_missing(model, &missing, is_any, is_target, o);
	str_free(&missing);
	return err;
}

/* ---- ranks and scales ---- */

/* A rank is a whole number, alpha any; both above 0. Keys are expressions. */
static int check_pattern(const json_t *pattern, const char *name, int is_whole)
{
	struct name_pattern *expression;
	const char *key;
	json_t *value;
	int err;

	if (pattern && !json_is_object(pattern))
		return err_set(ERR_INPUT, "%s: not an object, as in {\"q_proj\": 16}", name);
	json_object_foreach((json_t *)pattern, key, value)
	{
		double number = json_number_value(value);

		if (!(number > 0) || !isfinite(number) ||
		        (is_whole && (number > ADAPTER_RANK_MAX || number != floor(number))))
			return err_set(ERR_INPUT, "%s: the value of \"%.80s\" is not a %s above 0", name, key,
			        is_whole ? "whole number" : "number");
		err = name_pattern_open(&expression, name, key);
		if (err)
			return err;
		name_pattern_close(expression);
	}
	return 0;
}

/* The value of the first key that fits the last parts of the module's name; else *value stays. Marks the key
 * in `used`. */
static int pattern_value(double *value, const struct model *model, const json_t *pattern, const char *what,
        const char *module, char *used)
{
	const char *key;
	const json_t *number;
	size_t i = 0;

	json_object_foreach((json_t *)pattern, key, number)
	{
		char *text = mem_printf("(?:.*\\.)?(?:%s)", key);
		struct name_pattern *p = NULL;
		int fits = text ? name_pattern_open(&p, what, text) : ERR_NOMEM;

		if (!fits)
			fits = adapter_name_fits(model, module, adapter_expression_fits, p);
		name_pattern_close(p);
		mem_free(text);
		if (fits < 0)
			return fits;
		if (fits) {
			*value = json_number_value(number);
			used[i] = 1;
			return 0;
		}
		i++;
	}
	return 0;
}

/* Sets rank and scale of the adapter of one matrix, or of one part of experts' matrices. */
static int set_adapter(struct model_config *config, const struct adapter_options *o,
        const struct model *model, int tensor, int part, char *const used[2])
{
	const struct model_tensor *t = &model->tensors[tensor];
	struct adapter_config *adapter = t->layer < 0 ? config->adapter : config->block[t->layer].adapter;
	int is_stack = expert_parts(t->role) > 0;
	char *module = !is_stack              ? module_of(model, t)
	               : part == EXPERT_WHOLE ? model_parameter_name(model, tensor)
	                                      : expert_module(model, tensor, part, 0);
	int a = (int)(is_stack ? expert_adapter_role(t->role, part) : role_adapter(t->role)),
	    err = module ? 0 : ERR_NOMEM;
	double rank = (double)o->rank, alpha = o->alpha;

	if (!err)
		err = pattern_value(&rank, model, o->rank_pattern, o->called.rank_pattern, module, used[0]);
	if (!err)
		err = pattern_value(
		        &alpha, model, o->alpha_pattern, o->called.alpha_pattern, module, used[1]);
	mem_free(module);
	if (!err && o->use_dora &&
	        (role_magnitude((enum tensor_role)a) == ROLE_COUNT || model_is_parameter(model, t->role)))
		err = err_set(ERR_UNSUPPORTED,
		        "%s: DoRA of %s is not supported; name other modules, or leave %s out",
		        o->called.targets,
		        is_stack                   ? "experts"
		        : t->role == ROLE_ROUTER_W ? "routers"
		                                   : "the embedding",
		        o->called.dora);
	config->adapter_by_parameter |= part == EXPERT_WHOLE;
	for (int i = a; i < a + 2 && !err; i++)
		adapter[i] =
		        (struct adapter_config){(int64_t)rank, alpha / (o->use_rslora ? sqrt(rank) : rank)};
	config->adapter_rank = max_i64(config->adapter_rank, (int64_t)rank);
	return err;
}

static int set_adapters(struct model_config *config, const struct adapter_options *o,
        const struct model *model, const char *chosen)
{
	const json_t *const patterns[] = {o->rank_pattern, o->alpha_pattern};
	char *used[2];
	const char *key;
	json_t *value;
	int err = 0;

	for (int i = 0; i < 2; i++) {
		used[i] = mem_alloc(json_object_size(patterns[i]) + 1, 1);
		err = used[i] ? err : ERR_NOMEM;
	}
	for (int64_t l = 0; l < config->L; l++)
		memset(config->block[l].adapter, 0, sizeof(config->block[l].adapter));
	memset(config->adapter, 0, sizeof(config->adapter));
	for (int t = 0; t < model->tensor_count && !err; t++)
		for (int part = 0; part <= EXPERT_WHOLE && !err; part++)
			if (chosen[t] & 1 << part)
				err = set_adapter(config, o, model, t, part, used);
	for (int i = 0; i < 2 && !err && o->is_asked; i++) {
		size_t at = 0;

		json_object_foreach((json_t *)patterns[i], key, value)
		{
			if (!used[i][at++] && !err)
				err = err_set(ERR_INPUT, "%s: %.80s names no module with an adapter",
				        i ? o->called.alpha_pattern : o->called.rank_pattern, key);
		}
	}
	mem_free(used[0]);
	mem_free(used[1]);
	return err;
}

static int check_any(const char *chosen, const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++)
		if (chosen[t])
			return 0;
	return err_set(ERR_INPUT, "no module is left");
}

static int check_dropout(const struct model *model, const struct adapter_options *o, const char *chosen)
{
	for (int t = 0; t < model->tensor_count && o->dropout > 0; t++)
		if (chosen[t] && (expert_parts(model->tensors[t].role) ||
		                         model_is_parameter(model, model->tensors[t].role)))
			return err_set(ERR_UNSUPPORTED,
			        "lora_dropout is %g: adapters of experts and routers have none; set it to 0",
			        o->dropout);
	return 0;
}

static int noted(int err, const char *where)
{
	return err ? err_note(err, "%s", where) : 0;
}

int model_adapt(struct model *model, const struct adapter_options *o)
{
	struct model_config changed = model->config;
	char *chosen = mem_alloc((size_t)model->tensor_count, 1);
	int err = chosen ? 0 : ERR_NOMEM;

	if (!err && (o->targets || !o->parameters))
		err = noted(mark_all(chosen, 1, model, o->targets, o), o->called.targets);

	changed.adapter_rank = 0;
	changed.adapter_dropout = o->dropout;
	changed.adapter_magnitudes = o->use_dora;
	changed.adapter_by_parameter = 0;
	if (!err && o->exclude)
		err = noted(mark_all(chosen, 0, model, o->exclude, o), o->called.exclude);
	if (!err)
		err = noted(o->layers ? adapter_keep_layers(chosen, model, o->layers) : 0, o->called.layers);
	if (!err && o->layers_pattern)
		err = noted(
		        o->layers ? adapter_keep_lists(chosen, model, o->layers_pattern)
		                  : err_set(ERR_INPUT, "has no effect without %s; set it", o->called.layers),
		        o->called.layers_pattern);
	if (!err && o->saved)
		err = noted(adapter_drop_saved(chosen, model, o), o->called.saved);
	if (!err && o->parameters)
		err = noted(adapter_mark_parameters(chosen, model, o), o->called.parameters);
	if (!err)
		err = noted(check_any(chosen, model), o->called.targets);
	if (!err)
		err = check_pattern(o->rank_pattern, o->called.rank_pattern, 1);
	if (!err)
		err = check_pattern(o->alpha_pattern, o->called.alpha_pattern, 0);
	if (!err)
		err = check_dropout(model, o, chosen);
	if (!err)
		err = set_adapters(&changed, o, model, chosen);
	mem_free(chosen);
	if (!err)
		err = model_rebuild(model, &changed);
	if (!err && o->saved)
		err = noted(adapter_set_saved(model, o), o->called.saved);
	if (!err)
		err = adapter_set_given(model, o->given);
	return err;
}

int model_tensor_is_adapter(const struct model_tensor *tensor)
{
	return role_facts[tensor->role].part == MODEL_PART_ADAPTER;
}

int model_may_adapt(const struct model *model, enum tensor_role role)
{
	if (family_woven_of(model->family, role) || (role == ROLE_EMBED && model_ties_head(model)))
		return 0;
	return role_adapter(role) != ROLE_COUNT;
}

int model_is_parameter(const struct model *model, enum tensor_role role)
{
	return role == ROLE_ROUTER_W && !model->family->has_router_modules;
}

int model_adapter_of(const struct model *model, int tensor)
{
	enum tensor_role a = tensor < 0 ? ROLE_COUNT : role_adapter(model->tensors[tensor].role);

	return a == ROLE_COUNT ? -1 : model_tensor_of(model, a, model->tensors[tensor].layer);
}

int model_matrix_is_turned(const struct model *model, const struct model_tensor *matrix)
{
	enum role_kind kind = role_facts[matrix->role].kind;

	return model->config.weight_in_out && (kind == KIND_MATRIX || kind == KIND_RESIDUAL);
}
