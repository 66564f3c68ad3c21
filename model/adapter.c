/* Finds the matrices that get adapters, and adds their tensors. */
#include "model/adapter.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/str.h"
#include "model/family.h"
#include "model/module_names.h"
#include "model/name_pattern.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char all_linear[] = "all-linear";

/* Whether `name`, of a module or its last parts, is that of the tensor's module. */
static int names_module(const char *name, const struct model_tensor *t)
{
	size_t len = strlen(name), whole = (size_t)(strrchr(t->name, '.') - t->name); /* without ".weight" */

	return len && len <= whole && !strncmp(t->name + whole - len, name, len) &&
	       (len == whole || t->name[whole - len - 1] == '.');
}

static int fail_name(const struct model *model, const char *name, int is_other)
{
	struct str modules = {0};
	int err;

	model_list_modules(&modules, model, 0);
	err = str_check(&modules) ? ERR_NOMEM
	                          : err_set(ERR_INPUT, "%.80s: %s: %s", name,
	                                    is_other ? "only the matrices of blocks can have adapters"
	                                             : "the model has no such module; it has",
	                                    modules.data ? modules.data : "");
	str_free(&modules);
	return err;
}

/* The module of a tensor: its name without ".weight" (mem_free). */
static char *module_of(const struct model_tensor *t)
{
	return mem_strndup(t->name, (size_t)(strrchr(t->name, '.') - t->name));
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

/* Whether a name of the module fits: its own or, in a whole model, one of its versions' names. 1, 0, ERR_*.
 */
static int name_fits(const struct model *model, const char *module,
        int (*fits)(const void *wanted, const char *name), const void *wanted)
{
	const char *in_base = strncmp(module, "model.", 6) ? module : module + 6;
	int found = fits(wanted, module);

	for (const char *const *prefix = model_text_prefixes; model->whole && *prefix && !found; prefix++)
		for (int i = 0; i < 2 && !found; i++) {
			char *name = mem_printf("%s%s", *prefix, i ? in_base : module);

			found = name ? fits(wanted, name) : ERR_NOMEM;
			mem_free(name);
		}
	return found;
}

static int expression_fits(const void *pattern, const char *name)
{
	return name_pattern_matches(pattern, name);
}

/* Whether a name or an expression means the head, also where a tied model has no tensor for it, or by the
 * name that transformers has for its module. 1, 0, ERR_*. */
static int means_head(const struct model *model, const char *name, const struct name_pattern *pattern)
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

/* Sets `chosen` of the matrices that a name or an expression means to `mark`, and *found, if it means any.
 * ERR_INPUT: it means modules that cannot have adapters. */
static int mark_matches(char *chosen, char mark, int *found, const struct model *model, const char *name)
{
	int is_all = !strcmp(name, all_linear), others = 0, err = 0;
	const char *own = model_text_name(name);
	struct name_pattern *pattern = NULL;

	if (!is_all && is_expression(name))
		err = name_pattern_open(&pattern, NULL, name);
	if (!err && !is_all)
		others = means_head(model, own, pattern);
	err = others < 0 ? others : err;
	for (int i = 0; i < model->tensor_count && !err; i++) {
		const struct model_tensor *t = &model->tensors[i];
		char *module = pattern && t->rank > 1 ? module_of(t) : NULL;
		int fits;

		if (pattern)
			fits = module        ? name_fits(model, module, expression_fits, pattern)
			       : t->rank > 1 ? ERR_NOMEM
			                     : 0;
		else
			fits = is_all || names_module(own, t);
		mem_free(module);
		if (fits < 0)
			err = fits;
		else if (fits && !model_may_adapt(model, t->role))
			others = 1;
		else if (fits)
			chosen[i] = mark, *found = 1;
	}
	name_pattern_close(pattern);
	if (err || is_all || !others)
		return err;
	if (!mark) {
		*found = 1;
		return 0;
	}
	return *found && !is_expression(name) ? 0 : fail_name(model, name, 1);
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
		return fail_name(model, missing->data, 0);
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
			err = mark_matches(chosen, (char)is_target, &found, model, name);
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
			fits = name_fits(model, module, expression_fits, p);
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

/* Sets rank and scale of the adapter of one matrix. */
static int set_adapter(struct model_config *config, const struct adapter_options *o,
        const struct model *model, const struct model_tensor *t, char *const used[2])
{
	char *module = module_of(t);
	int a = (int)role_adapter(t->role), err = module ? 0 : ERR_NOMEM;
	double rank = (double)o->rank, alpha = o->alpha;

	if (!err)
		err = pattern_value(&rank, model, o->rank_pattern, o->called.rank_pattern, module, used[0]);
	if (!err)
		err = pattern_value(
		        &alpha, model, o->alpha_pattern, o->called.alpha_pattern, module, used[1]);
	mem_free(module);
	for (int i = a; i < a + 2 && !err; i++) {
		config->block[t->layer].adapter[i].rank = (int64_t)rank;
		config->block[t->layer].adapter[i].scale = alpha / (o->use_rslora ? sqrt(rank) : rank);
	}
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
	for (int t = 0; t < model->tensor_count && !err; t++)
		if (chosen[t])
			err = set_adapter(config, o, model, &model->tensors[t], used);
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

/* Keeps only matrices of these blocks: a number, or an array of them. */
static int keep_layers(char *chosen, const struct model *model, const json_t *layers)
{
	int64_t L = model->config.L, count = json_is_array(layers) ? (int64_t)json_array_size(layers) : 1;
	char *kept = mem_alloc((size_t)L, 1);

	if (!kept)
		return ERR_NOMEM;
	for (int64_t i = 0; i < count; i++) {
		const json_t *item = json_is_array(layers) ? json_array_get(layers, (size_t)i) : layers;
		json_int_t layer = json_is_integer(item) ? json_integer_value(item) : -1;

		if (layer < 0 || layer >= L) {
			mem_free(kept);
			if (!json_is_integer(item))
				return err_set(ERR_INPUT,
				        "an entry is %s; expected block numbers from 0 to %" PRId64,
				        json_kind_name(item), L - 1);
			return err_set(ERR_INPUT,
			        "there is no block %" JSON_INTEGER_FORMAT
			        "; the model has blocks 0 to %" PRId64,
			        layer, L - 1);
		}
		kept[layer] = 1;
	}
	for (int t = 0; t < model->tensor_count; t++)
		if (chosen[t] && !kept[model->tensors[t].layer])
			chosen[t] = 0;
	mem_free(kept);
	return 0;
}

static int check_any(const char *chosen, const struct model *model)
{
	return memchr(chosen, 1, (size_t)model->tensor_count) ? 0 : err_set(ERR_INPUT, "no module is left");
}

/* ---- modules that train whole ---- */

static int ends_with(const void *end, const char *name)
{
	return str_ends_with(name, end);
}

/* Whether the tensor is of a module with such a name, or of one within it: PEFT compares the ends of names,
 * so "norm" means "input_layernorm" too. 1, 0, ERR_*. */
static int is_within(const struct model *model, const char *name, const struct model_tensor *t)
{
	int fits = t->role == ROLE_HEAD_W ? means_head(model, name, NULL) : 0;

	for (const char *dot = strchr(t->name, '.'); dot && !fits; dot = strchr(dot + 1, '.')) {
		char *module = mem_strndup(t->name, (size_t)(dot - t->name));

		fits = module ? name_fits(model, module, ends_with, name) : ERR_NOMEM;
		mem_free(module);
	}
	return fits;
}

/* Marks the tensors of modules that have such a name. 1: there are some; 0; ERR_UNSUPPORTED: an embedding
 * that the head reads too. */
static int mark_saved_name(char *marked, const struct model *model, const char *name)
{
	int found = model->config.tied ? means_head(model, model_text_name(name), NULL) : 0;
	int is_tied = found;

	for (int t = 0; t < model->tensor_count && found >= 0; t++) {
		const struct model_tensor *tensor = &model->tensors[t];
		int fits = model_tensor_is_adapter(tensor) ? 0 : is_within(model, name, tensor);

		if (fits)
			found = fits;
		if (fits <= 0)
			continue;
		is_tied |= tensor->role == ROLE_EMBED && model->config.tied;
		marked[t] = 1;
	}
	return found > 0 && is_tied ? err_set(ERR_UNSUPPORTED,
	                                      "%.80s: the model ties its embedding to its head, one tensor "
	                                      "where PEFT trains a "
	                                      "copy of one of them; untie them first: save the model with "
	                                      "transformers and "
	                                      "tie_word_embeddings=False",
	                                      name)
	                            : found;
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
static int drop_saved(char *chosen, const struct model *model, const struct adapter_options *o)
{
	char *marked = mem_alloc((size_t)model->tensor_count, 1);
	int err = marked ? mark_saved(marked, model, o, 1) : ERR_NOMEM;

	for (int t = 0; t < model->tensor_count && !err; t++)
		if (marked[t])
			chosen[t] = 0;
	mem_free(marked);
	return err;
}

static int set_saved(struct model *model, const struct adapter_options *o)
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

static int set_given(struct model *model, const json_t *names)
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

static int noted(int err, const char *where)
{
	return err ? err_note(err, "%s", where) : 0;
}

int model_adapt(struct model *model, const struct adapter_options *o)
{
	struct model_config changed = model->config;
	char *chosen = mem_alloc((size_t)model->tensor_count, 1);
	int err = chosen ? noted(mark_all(chosen, 1, model, o->targets, o), o->called.targets) : ERR_NOMEM;

	changed.adapter_rank = 0;
	changed.adapter_dropout = o->dropout;
	if (!err && o->exclude)
		err = noted(mark_all(chosen, 0, model, o->exclude, o), o->called.exclude);
	if (!err)
		err = noted(o->layers ? keep_layers(chosen, model, o->layers) : 0, o->called.layers);
	if (!err && o->saved)
		err = noted(drop_saved(chosen, model, o), o->called.saved);
	if (!err)
		err = noted(check_any(chosen, model), o->called.targets);
	if (!err)
		err = check_pattern(o->rank_pattern, o->called.rank_pattern, 1);
	if (!err)
		err = check_pattern(o->alpha_pattern, o->called.alpha_pattern, 0);
	if (!err)
		err = set_adapters(&changed, o, model, chosen);
	mem_free(chosen);
	if (!err)
		err = model_rebuild(model, &changed);
	if (!err && o->saved)
		err = noted(set_saved(model, o), o->called.saved);
	if (!err)
		err = set_given(model, o->given);
	return err;
}

int model_tensor_is_adapter(const struct model_tensor *tensor)
{
	return role_facts[tensor->role].kind == KIND_ADAPTER;
}

int model_may_adapt(const struct model *model, enum tensor_role role)
{
	for (const enum tensor_role *w = model->family->woven; w && *w != ROLE_COUNT; w++)
		if (*w == role)
			return 0;
	return role_adapter(role) != ROLE_COUNT;
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
	config.adapter_rank = 0;
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
