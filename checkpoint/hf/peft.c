/* Writes adapters as PEFT does. */
#include "checkpoint/hf/peft.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "checkpoint/file/convert.h"
#include "checkpoint/file/safetensors.h"
#include "checkpoint/file/weights.h"
#include "checkpoint/hf/hf_config.h"
#include "checkpoint/hf/peft_experts.h"
#include "model/adapter.h"
#include "model/expert_names.h"
#include "model/family.h"
#include "model/module_names.h"

#include <string.h>

/* The last `parts` parts of a module's name, of a tensor of it. */
static json_t *module_name(const char *tensor_name, int parts)
{
	const char *end = strrchr(tensor_name, '.'), *begin = end;

	for (; begin > tensor_name && (begin[-1] != '.' || --parts); begin--)
		;
	return json_stringn(begin, (size_t)(end - begin));
}

/* Whether a block has two modules of the same last part, as GPT-2's two c_proj. */
static int is_ambiguous(const struct model *model, int tensor)
{
	json_t *name = module_name(model->tensors[tensor].name, 1);
	int found = 0;

	for (int t = 0; t < model->tensor_count; t++) {
		const struct model_tensor *other = &model->tensors[t];
		json_t *its;

		if (other->role == model->tensors[tensor].role || other->rank != 2 ||
		        model_tensor_is_adapter(other))
			continue;
		its = module_name(other->name, 1);
		found |= json_equal(its, name);
		json_decref(its);
	}
	json_decref(name);
	return found;
}

static int list_has(const json_t *list, const json_t *item)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (json_equal(json_array_get(list, i), item))
			return 1;
	return 0;
}

/* The model_type of the whole model whose class the adapter is for, or NULL. */
static const char *whole_of(const struct peft_export *o, const struct model *model)
{
	return o->is_text_only ? NULL : model->whole;
}

/* The module's whole name, as the other parts of a whole model may have modules of the same last name. */
static json_t *whole_name(const struct model *model, const char *whole, int tensor)
{
	char *own = model_parameter_name(model, tensor), *name = own ? peft_name(model, whole, own) : NULL;
	json_t *module = name ? json_stringn(name + strlen(PEFT_PREFIX),
	                                (size_t)(strrchr(name, '.') - name) - strlen(PEFT_PREFIX))
	                      : NULL;

	mem_free(own);
	mem_free(name);
	return module;
}

/* The modules with adapters, and where rank or alpha are not those of the first one. */
struct modules {
	int64_t rank; /* 0: none yet */
	double scale;
	json_t *names, *parameters, *rank_pattern, *alpha_pattern, *saved;
};

static int modules_add(struct modules *m, const char *name, int64_t rank, double scale)
{
	json_t *alpha = json_of_number(scale * (double)rank), *first;
	int err = 0;

	if (!m->rank) {
		m->rank = rank;
		m->scale = scale;
	}
	first = json_of_number(m->scale * (double)m->rank);
	if (rank != m->rank)
		err = json_object_set_new(m->rank_pattern, name, json_integer((json_int_t)rank));
	if (!err && !json_equal(alpha, first))
		err = json_object_set(m->alpha_pattern, name, alpha);
	json_decref(alpha);
	json_decref(first);
	return err ? ERR_NOMEM : 0;
}

/* A module that trains whole, once; takes the name. */
static int saved_add(struct modules *m, json_t *name)
{
	if (name && list_has(m->saved, name)) {
		json_decref(name);
		return 0;
	}
	return !name || json_array_append_new(m->saved, name) ? ERR_NOMEM : 0;
}

/* Leaves out modules within others of the list, which PEFT wraps whole. */
static void saved_prune(json_t *saved)
{
	for (size_t i = json_array_size(saved); i-- > 0;) {
		const char *name = json_string_value(json_array_get(saved, i));
		int is_within = 0;

		for (size_t j = 0; j < json_array_size(saved) && !is_within; j++) {
			const char *outer = json_string_value(json_array_get(saved, j));
			size_t len = strlen(outer);

			is_within = !strncmp(name, outer, len) && name[len] == '.';
		}
		if (is_within)
			json_array_remove(saved, i);
	}
}

static double scale_of(const struct model *model, int a)
{
	const struct model_tensor *t = &model->tensors[a];

	return config_adapter(&model->config, t->role, t->layer)->scale;
}

/* Whether this matrix has the same adapter in every block, but for its values. */
static int is_everywhere(const struct model *model, int tensor)
{
	int first = model_adapter_of(model, model_tensor_of(model, model->tensors[tensor].role, 0));

	for (int l = 0; l < model->config.L && first >= 0; l++) {
		int a = model_adapter_of(model, model_tensor_of(model, model->tensors[tensor].role, l));

		if (a < 0 || model->tensors[a].shape[0] != model->tensors[first].shape[0] ||
		        scale_of(model, a) != scale_of(model, first))
			return 0;
	}
	return first >= 0;
}

/* Adds a name once. */
static int list_add(json_t *list, const json_t *name)
{
	return !name || (!list_has(list, name) && json_array_append(list, (json_t *)name)) ? ERR_NOMEM : 0;
}

/* Whether a module's name ends as those of experts, which the files have one by one. transformers 5 has the
 * experts of a layer in one parameter, and PEFT takes every such name in target_modules for that parameter.
 */
static int is_called_as_experts(const struct model *model, const char *tensor_name)
{
	const char *end = strrchr(tensor_name, '.'), *begin = end;

	while (begin && begin > tensor_name && begin[-1] != '.')
		begin--;
	for (const struct family_split *s = model->family->splits; begin && s && s->whole; s++) {
		const char *leaf = strstr(s->piece, "%d.");

		if (leaf && !strncmp(leaf + 3, begin, (size_t)(end - begin) + 1))
			return 1;
	}
	return 0;
}

/* Whether experts' modules share their last part with a dense or a shared MLP. */
static int experts_share_names(const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++)
		if (model->tensors[t].rank == 2 && !model_tensor_is_adapter(&model->tensors[t]) &&
		        is_called_as_experts(model, model->tensors[t].name))
			return 1;
	return 0;
}

/* "experts.3.down_proj" of a module's whole name. */
static const char *expert_name(const char *module)
{
	const char *at = strstr(module, ".experts.");

	return at ? at + 1 : module;
}

/* The modules of experts: by their last parts, or, if others have these, each expert. PEFT makes adapters of
 * transformers' one parameter from either. */
static int experts_add(struct modules *m, const struct model *model, int tensor)
{
	const struct model_tensor *t = &model->tensors[tensor];
	int is_shared = experts_share_names(model), err = 0;

	for (int part = 0; part < expert_parts(t->role) && !err; part++) {
		int own = model_tensor_of(model, expert_adapter_role(t->role, part), t->layer),
		    a = own >= 0 ? own
		                 : model_tensor_of(
		                           model, expert_adapter_role(t->role, EXPERT_WHOLE), t->layer);
		int64_t count = a < 0 ? 0 : is_shared ? t->shape[0] : 1;

		for (int64_t e = 0; e < count && !err; e++) {
			char *module = expert_module(model, tensor, part, e);
			const char *leaf = module ? strrchr(module, '.') + 1 : "";
			json_t *name = module ? json_of_text(is_shared ? expert_name(module) : leaf) : NULL;
			char *pattern = mem_printf("%s%s", is_shared ? "experts\\.(.*\\.)?" : "", leaf);

			err = pattern ? list_add(m->names, name) : ERR_NOMEM;
			if (!err)
				err = modules_add(m, pattern,
				        model->config.block[t->layer].adapter[model->tensors[a].role].rank,
				        scale_of(model, a));
			json_decref(name);
			mem_free(pattern);
			mem_free(module);
		}
	}
	return err;
}

/* Whether all layers with this stack have the same adapters of it, but for their values. */
static int stack_is_everywhere(const struct model *model, int stack)
{
	struct peft_fused first, other;

	(void)peft_fused_of(&first, model, stack);
	for (int t = 0; t < model->tensor_count; t++) {
		if (model->tensors[t].role != model->tensors[stack].role)
			continue;
		if (!peft_fused_of(&other, model, t) || other.rank != first.rank ||
		        other.scale != first.scale)
			return 0;
	}
	return 1;
}

/* The parameter of all experts: by its last parts, or its whole name where layers differ. */
static int fused_add(struct modules *m, const struct model *model, const char *whole, int stack)
{
	struct peft_fused fused;
	char *own, *name;
	int err;

	if (!peft_fused_of(&fused, model, stack))
		return 0;
	own = model_parameter_name(model, stack);
	name = own ? peft_name(model, whole, own) : NULL;
	if (name) {
		const char *begin = stack_is_everywhere(model, stack) ? strstr(name, ".experts.") : NULL;
		json_t *text;

		while (begin && begin > name && begin[-1] != '.')
			begin--; /* "mlp.experts.down_proj"; Gemma 4's experts are the layer's, "3.experts.down_proj" */
		if (begin && *begin >= '0' && *begin <= '9')
			begin = strchr(begin, '.') + 1;
		text = json_of_text(begin ? begin : name + strlen(PEFT_PREFIX));
		err = list_add(m->parameters, text);
		if (!err)
			err = modules_add(m, json_string_value(text), fused.rank, fused.scale);
		json_decref(text);
	} else {
		err = ERR_NOMEM;
	}
	mem_free(own);
	mem_free(name);
	return err;
}

/* A matrix by its module's last part, once; by its whole name in a text part, and where blocks differ. Called
 * as experts are, or a parameter for PEFT, by its weight. */
static int matrix_add(struct modules *m, const struct model *model, const char *whole, int tensor, int a)
{
	const struct model_tensor *t = &model->tensors[tensor];
	int is_short = !whole && is_everywhere(model, tensor) && !model_is_parameter(model, t->role),
	    is_parameter = is_called_as_experts(model, t->name) || model_is_parameter(model, t->role);
	char *parameter;
	json_t *name;
	int err;

	if (is_short && t->layer != 0)
		return 0;
	name = is_short ? module_name(t->name, is_parameter || is_ambiguous(model, tensor) ? 2 : 1)
	                : whole_name(model, whole, tensor);
	if (name && is_parameter) {
		parameter = mem_printf("%s.weight", json_string_value(name));
		json_decref(name);
		name = parameter ? json_of_text(parameter) : NULL;
		mem_free(parameter);
	}
	err = list_add(is_parameter ? m->parameters : m->names, name);
	if (!err)
		err = modules_add(m, json_string_value(name), model->tensors[a].shape[0], scale_of(model, a));
	json_decref(name);
	return err;
}

static void modules_open(struct modules *m, const struct peft_export *o, const struct model *model)
{
	*m = (struct modules){.rank = o->rank,
	        .scale = o->scale,
	        .names = json_array(),
	        .parameters = json_array(),
	        .rank_pattern = json_object(),
	        .alpha_pattern = json_object(),
	        .saved = json_array()};
	/* PEFT takes r and lora_alpha for experts */
	for (int t = 0; t < model->tensor_count; t++) {
		if (!expert_is_adapter(model->tensors[t].role))
			continue;
		m->rank = model->config.block[model->tensors[t].layer].adapter[model->tensors[t].role].rank;
		m->scale = scale_of(model, t);
		return;
	}
}

static int modules_find(struct modules *m, const struct peft_export *o, const struct model *model)
{
	const char *whole = whole_of(o, model);
	int err = 0, is_fused = peft_writes_fused(o, model);

	modules_open(m, o, model);
	for (int t = 0; t < model->tensor_count && !err; t++) {
		int a = model_adapter_of(model, t);

		if (expert_parts(model->tensors[t].role))
			err = is_fused ? fused_add(m, model, whole, t) : experts_add(m, model, t);
		else if (a >= 0)
			err = matrix_add(m, model, whole, t, a);
		if (!err && model->tensors[t].in_adapter == IN_ADAPTER_PART &&
		        !model_tensor_is_adapter(&model->tensors[t]))
			err = saved_add(m, whole_name(model, whole, t));
	}
	saved_prune(m->saved);
	return err;
}

/* PEFT has no dropout for parameters. */
static int name_parameters(json_t *config, const struct modules *m, const struct model *model)
{
	if (model->config.adapter_dropout > 0)
		log_warn("lora_dropout of the adapter is written as 0, as PEFT has none for %s; the training "
		         "had it",
		        json_string_value(json_array_get(m->parameters, 0)));
	return json_object_set_new(config, "lora_dropout", json_real(0)) ||
	                       json_object_set(config, "target_parameters", m->parameters)
	               ? ERR_NOMEM
	               : 0;
}

/* PEFT's class for a task adds to the model what only language models have. */
static json_t *task_of(const struct model *model)
{
	const struct model_config *c = &model->config;

	return c->is_classifier || c->is_encoder || c->pooling.mode_count ? json_null()
	                                                                  : json_string("CAUSAL_LM");
}

static int write_config(const char *dir, const struct peft_export *o, const struct model *model)
{
	struct modules m;
	int err = modules_find(&m, o, model);
	json_t *config = json_pack("{s:s,s:o,s:o,s:I,s:o,s:f,s:s,s:o,s:o,s:o,s:b,s:b,s:b,s:b,s:b,s:o}",
	        "peft_type", "LORA", "task_type", task_of(model), "base_model_name_or_path",
	        json_of_text(o->base), "r", (json_int_t)m.rank, "lora_alpha",
	        json_of_number(m.scale * (double)m.rank), "lora_dropout", model->config.adapter_dropout,
	        "bias", "none", "target_modules", m.names, "rank_pattern", m.rank_pattern, "alpha_pattern",
	        m.alpha_pattern, "fan_in_fan_out", model->config.weight_in_out, "use_rslora", 0, "use_dora",
	        model->config.adapter_magnitudes, "inference_mode", 1, "init_lora_weights", 1,
	        "modules_to_save", json_array_size(m.saved) ? json_incref(m.saved) : json_null());
	char *path = file_join(dir, PEFT_CONFIG_NAME), *text = NULL;

	if (!err && json_array_size(m.parameters))
		err = name_parameters(config, &m, model);
	if (!err)
		err = json_write(&text, config, JSON_INDENT(2));
	if (!err)
		err = path ? file_write_all(path, text, strlen(text)) : ERR_NOMEM;
	json_decref(m.saved);
	json_decref(m.parameters);
	json_decref(config);
	mem_free(text);
	mem_free(path);
	return err;
}

static int fail_not_finite(const char *name)
{
	return err_set(ERR_NONFINITE,
	        "%s of the adapter is not finite; the training diverged, so it is not written", name);
}

/* Elements [at, end) of a tensor. */
static int append_range(struct safetensors_writer *writer, const struct model *model, int t, int64_t at,
        int64_t end, const struct plane_source *source, float *value)
{
	int err = 0;

	for (int64_t count; at < end && !err; at += count) {
		count = min_i64(PLANE_PIECE_COUNT, end - at);
		err = weights_read(source, t, at, count, value);
		if (!err && convert_kernels()->check(value, count))
			err = fail_not_finite(model->tensors[t].name);
		if (!err)
			err = safetensors_append(writer, value, (size_t)count * sizeof(*value));
	}
	return err;
}

/* ---- tensors ---- */

struct pieces {
	struct peft_piece *list;
	int64_t count;
};

/* The name of a matrix that has an adapter: "lm_head.base_layer.weight" of "lm_head.weight", which it frees.
 */
static char *within_adapter(const char *name)
{
	const char *dot = strrchr(name, '.');
	char *out = mem_printf("%.*s" PEFT_WITHIN "%s", (int)(dot - name), name, dot);

	mem_free((void *)(uintptr_t)name);
	return out;
}

/* Whether it is a matrix that trains itself, or is given, beside its adapter; or its bias. */
static int is_within_adapter(const struct model *model, int tensor)
{
	const struct model_tensor *t = &model->tensors[tensor];

	return !model_tensor_is_adapter(t) &&
	       model_adapter_of(
	               model, t->role == ROLE_HEAD_B ? model_tensor_of(model, ROLE_HEAD_W, -1) : tensor) >= 0;
}

/* Adds a tensor of this name, which is freed. */
static int piece_add(struct pieces *p, const struct peft_export *o, const struct model *model, char *name,
        struct peft_piece piece)
{
	piece.name = name ? peft_name(model, whole_of(o, model), name) : NULL;
	if (piece.name && piece.tensor >= 0 && is_within_adapter(model, piece.tensor))
		piece.name = within_adapter(piece.name);
	p->list[p->count++] = piece;
	mem_free(name);
	return piece.name ? 0 : ERR_NOMEM;
}

/* Those of each expert, for A or B of all. */
static int each_add(struct pieces *p, const struct peft_export *o, const struct model *model, int t)
{
	const struct model_tensor *tensor = &model->tensors[t];
	int64_t experts = model->config.block[tensor->layer].experts.count, rows = tensor->shape[0] / experts;
	int own, parts, err = 0;

	(void)expert_matrix_of(model, t, &own);
	parts = own == EXPERT_WHOLE ? 2 : 1;
	for (int64_t i = 0; i < parts * experts && !err; i++) {
		int is_a = role_is_a(tensor->role), part = (int)(i % parts);
		struct peft_piece piece = {
		        .rank = 2, .shape = {is_a ? rows : rows / parts, tensor->shape[1]}, .tensor = t};

		piece.count = piece.shape[0] * piece.shape[1];
		piece.first = i / parts * rows * tensor->shape[1] + (is_a ? 0 : part * piece.count);
		err = piece_add(p, o, model, expert_adapter_name(model, t, part, i / parts), piece);
	}
	return err;
}

static int fused_pieces_add(
        struct pieces *p, const struct peft_export *o, const struct model *model, int stack)
{
	struct peft_fused f;
	int err = 0;

	for (int is_b = 0; is_b < 2 && peft_fused_of(&f, model, stack) && !err; is_b++) {
		struct peft_piece piece = {.rank = 2, .tensor = -1, .stack = stack, .is_b = is_b};

		piece.shape[0] = is_b ? f.out : f.experts * f.rank;
		piece.shape[1] = is_b ? f.rank * f.experts : f.in;
		piece.count = piece.shape[0] * piece.shape[1];
		err = piece_add(p, o, model, peft_fused_name(model, stack, is_b), piece);
	}
	return err;
}

static int pieces_find(struct pieces *p, const struct peft_export *o, const struct model *model)
{
	int64_t room = 0;
	int is_fused = peft_writes_fused(o, model), err;

	for (int t = 0; t < model->tensor_count; t++)
		room += expert_is_adapter(model->tensors[t].role)
		                ? 2 * model->config.block[model->tensors[t].layer].experts.count
		                : 2;
	p->list = mem_alloc((size_t)room + 1, sizeof(*p->list));
	err = p->list ? 0 : ERR_NOMEM;
	for (int t = 0; t < model->tensor_count && !err; t++) {
		const struct model_tensor *tensor = &model->tensors[t];
		struct peft_piece piece = {.rank = tensor->rank, .tensor = t, .count = tensor->count};

		memcpy(piece.shape, tensor->shape, sizeof(tensor->shape));
		if (is_fused && expert_parts(tensor->role))
			err = fused_pieces_add(p, o, model, t);
		if (err || !tensor->in_adapter || (is_fused && expert_is_adapter(tensor->role)))
			continue;
		if (expert_is_adapter(tensor->role))
			err = each_add(p, o, model, t);
		else
			err = piece_add(p, o, model, model_parameter_name(model, t), piece);
	}
	return err;
}

static int append_fused(struct safetensors_writer *writer, const struct model *model,
        const struct peft_piece *piece, const struct plane_source *source)
{
	float *values;
	int err = peft_fused_values(&values, model, piece, source);

	if (!err && convert_kernels()->check(values, piece->count))
		err = fail_not_finite(piece->name);
	if (!err)
		err = safetensors_append(writer, values, (size_t)piece->count * sizeof(*values));
	mem_free(values);
	return err;
}

static int write_weights(const char *dir, const struct peft_export *o, const struct model *model,
        const struct plane_source *source)
{
	static const struct safetensors_text metadata = {"format", "pt"};
	float *value = mem_alloc(PLANE_PIECE_COUNT, sizeof(*value));
	char *path = file_join(dir, PEFT_WEIGHTS_NAME);
	struct safetensors_writer *writer = NULL;
	struct safetensors_decl *decls = NULL;
	struct pieces p = {0};
	int err = pieces_find(&p, o, model);

	decls = mem_alloc((size_t)p.count + 1, sizeof(*decls));
	if (!decls || !value || !path)
		err = ERR_NOMEM;
	for (int64_t i = 0; i < p.count && !err; i++) {
		decls[i] = (struct safetensors_decl){
		        .name = p.list[i].name, .dtype = SAFETENSORS_F32, .rank = p.list[i].rank};
		memcpy(decls[i].shape, p.list[i].shape, sizeof(p.list[i].shape));
	}
	if (!err)
		err = safetensors_create(&writer, path, decls, p.count, &metadata, 1, SAFETENSORS_PLAIN);
	for (int64_t i = 0; i < p.count && !err; i++)
		err = p.list[i].tensor < 0 ? append_fused(writer, model, &p.list[i], source)
		                           : append_range(writer, model, p.list[i].tensor, p.list[i].first,
		                                     p.list[i].first + p.list[i].count, source, value);
	if (!err)
		err = safetensors_finish(writer);
	safetensors_writer_free(writer);
	for (int64_t i = 0; i < p.count; i++)
		mem_free(p.list[i].name);
	mem_free(p.list);
	mem_free(decls);
	mem_free(value);
	mem_free(path);
	return err;
}

int peft_write(
        const struct peft_export *options, const struct model *model, const struct plane_source *source)
{
	struct result_dir dir;
	int err = result_dir_open(&dir, options->dir, options->existing);

	if (err)
		return err;
	err = write_config(dir.temp, options, model);
	if (!err)
		err = write_weights(dir.temp, options, model, source);
	if (!err)
		err = side_files_write_result(options->side, dir.temp, "config.json");
	if (!err && options->is_text_only && model->whole)
		err = hf_config_leave_text(dir.temp);
	if (!err && options->may_appear)
		err = options->may_appear();
	if (!err)
		err = result_dir_commit(&dir);
	result_dir_close(&dir);
	return err;
}
