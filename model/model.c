/* Builds the tables of a model: tensors, names and stages. */
#include "model/model.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "base/str.h"
#include "model/family.h"
#include "model/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the tensor table ---- */

static int role_in_block(enum tensor_role role)
{
	return role_facts[role].scope == SCOPE_BLOCK;
}

static int role_is_present(const struct model_config *c, enum tensor_role role, int layer)
{
	if (c->norm_of[role].is_plain)
		return 0;
	return layer >= 0 ? c->block[layer].has[role] : c->has[role] && !(role == ROLE_HEAD_W && c->tied);
}

/* Sets rank, shape and count of a tensor. At most 2^12 * 2^31 * 2^24 elements. */
static void set_shape(struct model_tensor *t, const struct model_config *c)
{
	const struct role_facts *facts = &role_facts[t->role];
	int is_stack = facts->kind == KIND_STACK || facts->kind == KIND_RESIDUAL_STACK,
	    is_turned = is_stack ? c->block[t->layer].experts.in_out
	                         : c->weight_in_out &&
	                                   (facts->kind == KIND_MATRIX || facts->kind == KIND_RESIDUAL);
	int64_t out = model_dim_of(c, facts->out, t->role, t->layer),
	        in = model_dim_of(c, facts->in, t->role, t->layer),
	        first = is_stack ? c->block[t->layer].experts.count : 1;

	t->rank = facts->kind < KIND_STACK ? 2 : facts->kind <= KIND_FILTER ? 3 : 1;
	t->count = first * out * in;
	if (is_stack)
		memcpy(t->shape, (int64_t[]){first, is_turned ? in : out, is_turned ? out : in},
		        sizeof(t->shape));
	else if (facts->kind == KIND_FILTER)
		memcpy(t->shape, (int64_t[]){out, 1, in}, sizeof(t->shape));
	else
		memcpy(t->shape, (int64_t[]){is_turned ? in : out, is_turned ? out : in, 1},
		        sizeof(t->shape));
}

/* Fills in a tensor, except for its name. */
static struct model_tensor tensor_of_role(const struct model_config *c, enum tensor_role role, int layer)
{
	struct model_tensor t = {.role = role,
	        .layer = layer,
	        .trainable = role_trains(role),
	        .in_adapter = role_facts[role].part == MODEL_PART_ADAPTER,
	        .storage = FORMAT_F32,
	        .first_stage = -1};

	set_shape(&t, c);
	t.decay = t.rank > 1 && role_facts[role].kind != KIND_BIAS_STACK;
	return t;
}

int model_tensor_put(struct model *model, enum tensor_role role, int layer, char *name, uint64_t *total)
{
	struct model_tensor *t = &model->tensors[model->tensor_count];
	int row = layer < 0 ? (int)model->config.L : layer, err;
	uint64_t count;

	*t = tensor_of_role(&model->config, role, layer);
	t->name = name;
	err = size_add(total, *total, (uint64_t)t->count);
	if (!err)
		err = size_mul(&count, *total, 16); /* bytes of weights, gradient and moments fit */
	if (name && (err || *total > INT64_MAX / 16)) {
		mem_free(name);
		t->name = NULL;
		return err_set(ERR_RANGE, "the model has more parameters than can be counted");
	}
	if (!name)
		return ERR_NOMEM;
	model->role_tensor[(int64_t)row * ROLE_COUNT + role] = model->tensor_count++;
	return 0;
}

/* Adds A and B of a module's adapter, if it has one, and its magnitudes. */
static int adapter_put(
        struct model *model, enum tensor_role a, int layer, const char *module, int len, uint64_t *total)
{
	const char *form = a == ROLE_EMBED_LORA_A ? "%.*s.lora_embedding_%c" : "%.*s.lora_%c.weight";
	int64_t rank = config_adapter(&model->config, a, layer)->rank;
	int err = 0;

	for (int i = 0; rank && i < 2 && !err; i++)
		err = model_tensor_put(model, a + i, layer, mem_printf(form, len, module, "AB"[i]), total);
	if (!err && model->config.adapter_magnitudes && rank && role_magnitude(a) != ROLE_COUNT)
		err = model_tensor_put(model, role_magnitude(a), layer,
		        mem_printf("%.*s.lora_magnitude_vector", len, module), total);
	return err;
}

/* Adds the adapters of a matrix. */
static int adapter_add(struct model *model, int matrix, uint64_t *total)
{
	const struct model_tensor *t = &model->tensors[matrix];
	enum tensor_role a = role_adapter(t->role);
	char *module;
	int err = 0;

	if (a == ROLE_COUNT || !model->config.adapter_rank)
		return 0;
	if (t->rank == 2)
		return adapter_put(
		        model, a, t->layer, t->name, (int)(strrchr(t->name, '.') - t->name), total);
	for (int part = 0; part <= EXPERT_WHOLE && !err; part++) {
		enum tensor_role own = expert_adapter_role(t->role, part);

		if (own == ROLE_COUNT || (part == EXPERT_WHOLE && expert_parts(t->role) == 1) ||
		        !model->config.block[t->layer].adapter[own].rank)
			continue;
		module = expert_table_module(model, matrix, part);
		err = module ? adapter_put(model, own, t->layer, module, (int)strlen(module), total)
		             : ERR_NOMEM;
		mem_free(module);
	}
	return err;
}

static int tensor_add(struct model *model, const struct family_tensor *part, int layer, uint64_t *total)
{
	const struct model_family *family = model->family;
	char *name;
	int err;

	if (!role_is_present(&model->config, part->role, layer) ||
	        (part->set && part->set != model->config.tensor_set))
		return 0;
	if (layer >= 0)
		name = mem_printf("%s%s.%d.%s", model->prefix, family->blocks ? family->blocks : "layers",
		        layer, part->name);
	else if (role_facts[part->role].part == MODEL_PART_HEAD || !strncmp(part->name, FAMILY_NO_PREFIX, 1))
		name = mem_strdup(part->name + !strncmp(part->name, FAMILY_NO_PREFIX, 1));
	else
		name = mem_printf("%s%s", model->prefix, part->name);
	err = model_tensor_put(model, part->role, layer, name, total);
	return err ? err : adapter_add(model, model->tensor_count - 1, total);
}

/* Follows the family's list and repeats its run of block tensors for every block. */
static int tensors_build(struct model *model)
{
	int64_t L = model->config.L;
	const struct family_tensor *part = model->family->tensors;
	uint64_t total = 0;
	int err = 0;

	model->tensors = mem_alloc((size_t)(L + 1) * ROLE_COUNT, sizeof(*model->tensors));
	model->role_tensor = mem_alloc((size_t)(L + 1) * ROLE_COUNT, sizeof(*model->role_tensor));
	if (!model->tensors || !model->role_tensor)
		return ERR_NOMEM;
	for (int64_t i = 0; i < (L + 1) * ROLE_COUNT; i++)
		model->role_tensor[i] = -1;
	for (; part->role != ROLE_COUNT && !role_in_block(part->role) && !err; part++)
		err = tensor_add(model, part, -1, &total);
	for (int64_t l = 0; l < L && !err; l++)
		for (const struct family_tensor *p = part;
		        p->role != ROLE_COUNT && role_in_block(p->role) && !err; p++)
			err = tensor_add(model, p, (int)l, &total);
	while (part->role != ROLE_COUNT && role_in_block(part->role))
		part++;
	for (; part->role != ROLE_COUNT && !err; part++)
		err = tensor_add(model, part, -1, &total);
	if (!err)
		err = model_pool_tensors(model, &total);
	model->parameter_count = (int64_t)total;
	return err;
}

static int compare_names(const void *a, const void *b, void *tensors)
{
	const struct model_tensor *t = tensors;

	return strcmp(t[*(const int *)a].name, t[*(const int *)b].name);
}

static int names_build(struct model *model)
{
	model->by_name = mem_alloc((size_t)model->tensor_count, sizeof(*model->by_name));
	if (!model->by_name)
		return ERR_NOMEM;
	for (int i = 0; i < model->tensor_count; i++)
		model->by_name[i] = i;
	qsort_r(model->by_name, (size_t)model->tensor_count, sizeof(*model->by_name), compare_names,
	        model->tensors);
	return 0;
}

/* ---- open and close ---- */

void model_tables_free(struct model *model)
{
	for (int i = 0; i < model->tensor_count; i++)
		mem_free(model->tensors[i].name);
	mem_free(model->tensors);
	mem_free(model->role_tensor);
	mem_free(model->stages);
	mem_free(model->groups);
	mem_free(model->stage_tensor);
	mem_free(model->values);
	mem_free(model->stage_value);
	mem_free(model->by_name);
}

static int64_t norm_zeros_of(const struct model_config *c)
{
	int64_t most = 0;

	for (int role = 0; role < ROLE_COUNT; role++)
		if (c->norm_of[role].is_plain)
			most = c->C;
	for (int64_t l = 0; l < c->L && most; l++)
		if (c->block[l].has[ROLE_Q_NORM_W])
			most = max_i64(most, c->block[l].D);
	return most;
}

static int tables_build(struct model *model)
{
	int err = tensors_build(model);

	model->config.norm_zeros = norm_zeros_of(&model->config);
	if (!err)
		err = names_build(model);
	if (!err)
		err = model_stages_build(model);
	if (!err)
		err = model_values_build(model);
	return err;
}

int model_build(struct model **model, const struct model_family *family, struct model_config *config)
{
	struct model *m = mem_alloc(1, sizeof(*m));
	int err;

	*model = NULL;
	if (!m) {
		model_config_free(config);
		return ERR_NOMEM;
	}
	m->config = *config;
	m->family = family;
	m->prefix = family_prefix(family);
	err = tables_build(m);
	if (err)
		model_close(m);
	else
		*model = m;
	return err;
}

void model_close(struct model *model)
{
	if (!model)
		return;
	model_tables_free(model);
	model_config_free(&model->config);
	mem_free(model);
}

int model_rebuild_copy(struct model *model, const struct model_config *config)
{
	struct model was = *model;
	int err;

	model->config = *config;
	model->tensor_count = 0;
	model->tensors = NULL;
	model->stages = NULL;
	model->groups = NULL;
	model->values = NULL;
	model->stage_value = NULL;
	model->role_tensor = model->stage_tensor = model->by_name = NULL;
	err = tables_build(model);
	if (err) {
		model_tables_free(model);
		*model = was;
		return err;
	}
	for (int i = 0; i < model->tensor_count; i++) {
		struct model_tensor *t = &model->tensors[i];
		int before = model_tensor_of(&was, t->role, t->layer);

		if (before < 0 && t->role == ROLE_HEAD_W)
			before = model_tensor_of(&was, ROLE_EMBED, -1);
		if (before < 0)
			continue;
		t->trainable = was.tensors[before].trainable;
		t->storage = was.tensors[before].storage;
		t->in_files = was.tensors[before].in_files;
		t->stored = was.tensors[before].stored;
		t->is_stored_turned = was.tensors[before].is_stored_turned;
		t->is_new = was.tensors[before].is_new;
		t->kept = was.tensors[before].kept;
		t->multiplied = was.tensors[before].multiplied;
		t->in_adapter = was.tensors[before].in_adapter;
	}
	return 0;
}

int model_rebuild(struct model *model, const struct model_config *config)
{
	struct model was = *model;
	int err = model_rebuild_copy(model, config);

	if (!err)
		model_tables_free(&was);
	return err;
}

int model_untie(struct model *model)
{
	struct model_config untied = model->config;
	int err;

	if (!model->config.tied)
		return 0;
	untied.tied = 0;
	err = model_rebuild(model, &untied);
	if (!err)
		model->is_untied = 1;
	return err;
}

int model_first_experts(const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++)
		if (model->tensors[t].role == ROLE_EXPERTS_GATE_UP_W)
			return t;
	return -1;
}

int model_turn_experts(struct model *model)
{
	struct model_config turned = model->config;
	int err;

	for (int64_t l = 0; l < turned.L; l++)
		turned.block[l].experts.in_out ^= turned.block[l].experts.is_either;
	err = model_rebuild(model, &turned);
	for (int64_t l = 0; l < turned.L && err; l++)
		turned.block[l].experts.in_out ^= turned.block[l].experts.is_either;
	return err;
}

int model_fit_experts(struct model *model, const char *name, int rank, const int64_t *shape)
{
	int tensor = model_find_tensor(model, name);
	const struct model_tensor *t = &model->tensors[tensor < 0 ? 0 : tensor];
	const struct experts_config *e;
	int is_other, is_square = rank == 3 && shape[1] == shape[2];

	if (tensor < 0 || t->role != ROLE_EXPERTS_GATE_UP_W || rank != 3)
		return 0;
	e = &model->config.block[t->layer].experts;
	is_other = shape[1] == t->shape[2] && shape[2] == t->shape[1] && (!is_square || e->in_out);
	return e->is_either && is_other ? model_turn_experts(model) : 0;
}

const char *family_prefix(const struct model_family *family)
{
	return family->prefix ? family->prefix : "model.";
}

const char *family_head_name(const struct model_family *family)
{
	for (const struct family_tensor *part = family->tensors; part->role != ROLE_COUNT; part++)
		if (part->role == ROLE_HEAD_W)
			return part->name;
	return NULL;
}

int family_is_head(const struct model_family *family, const char *name)
{
	const char *head = family_head_name(family);

	return (head && !strcmp(name, head)) || (family->head_alias && !strcmp(name, family->head_alias));
}

int model_set_trainable(struct model *model, int64_t *count,
        int (*is_trainable)(const char *name, const char *other_name, void *arg), void *arg)
{
	*count = model->frozen_norm_count = 0;
	for (int i = 0; i < model->tensor_count; i++) {
		struct model_tensor *t = &model->tensors[i];
		int is_head = t->role == ROLE_EMBED && model->config.tied, answer;

		if (!role_trains(t->role))
			continue;
		answer = is_trainable(t->name, is_head ? family_head_name(model->family) : NULL, arg);

		if (answer < 0)
			return answer;
		t->trainable = answer;
		*count += answer ? t->count : 0;
		if (!answer && role_facts[t->role].part == MODEL_PART_NORMS &&
		        t->count > model->frozen_norm_count)
			model->frozen_norm_count = t->count;
	}
	return 0;
}

/* ---- looking up ---- */

int model_tensor_of(const struct model *model, enum tensor_role role, int layer)
{
	int64_t row = layer < 0 ? model->config.L : layer;

	return model->role_tensor[row * ROLE_COUNT + role];
}

/* Index of the tensor with the name prefix + name. The prefix has len characters. */
static int find_name(const struct model *model, const char *prefix, size_t len, const char *name)
{
	int low = 0, high = model->tensor_count;

	while (low < high) {
		int mid = low + (high - low) / 2;
		const char *candidate = model->tensors[model->by_name[mid]].name;
		int order = strncmp(candidate, prefix, len);

		if (!order)
			order = strcmp(candidate + len, name);
		if (!order)
			return model->by_name[mid];
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return MODEL_NAME_UNKNOWN;
}

/* As find_name, with the family's prefix or a part of it: OPT's "model.decoder." is "decoder." in files of
 * the base model. Or by the name of the module. */
static int find_base_name(const struct model *model, const char *name)
{
	const char *modules = model->family->module_prefix;
	int found = MODEL_NAME_UNKNOWN;

	if (modules && !strncmp(name, modules, strlen(modules)))
		name += strlen(modules);
	for (const char *dot = strchr(model->prefix, '.'); dot && found < 0; dot = strchr(dot + 1, '.'))
		found = find_name(model, model->prefix, (size_t)(dot + 1 - model->prefix), name);
	return found;
}

static int ends_with_part(const char *name, const char *part)
{
	size_t len = strlen(name), part_len = strlen(part);

	return str_ends_with(name, part) && (len == part_len || name[len - part_len - 1] == '.');
}

static const char *const rotary_buffers[] = {
        "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", NULL};

const char *const model_text_prefixes[] = {
        "language_model.", "model.language_model.", "model.text_model.", "text_model.", NULL};

const char *model_text_name(const char *name)
{
	for (const char *const *prefix = model_text_prefixes; *prefix; prefix++) {
		size_t len = strlen(*prefix);

		if (!strncmp(name, *prefix, len))
			return name + len;
	}
	return name;
}

/* Whether the name is that of a block's k or v, and the block reads those of an earlier one: published files
 * have such tensors, which nothing reads. */
static int is_unread(const struct model *model, const char *name)
{
	static const enum tensor_role roles[] = {
	        ROLE_K_W, ROLE_K_B, ROLE_V_W, ROLE_V_B, ROLE_K_NORM_W, ROLE_V_NORM_W};
	const char *blocks = model->family->blocks ? model->family->blocks : "layers",
	           *at = strstr(name, blocks);
	size_t len = strlen(blocks);
	char *end;
	long l;

	if (!at || at[len] != '.' || !model->config.value_count)
		return 0;
	l = strtol(at + len + 1, &end, 10);
	if (*end != '.' || l < 0 || l >= model->config.L || model->config.block[l].has[ROLE_K_W])
		return 0;
	for (const struct family_tensor *t = model->family->tensors; t->role != ROLE_COUNT; t++)
		for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
			if (t->role == roles[i] && !strcmp(end + 1, t->name))
				return 1;
	return 0;
}

int model_find_tensor(const struct model *model, const char *name)
{
	const struct model_family *family = model->family;
	int found;

	name = model_text_name(name);
	found = find_name(model, "", 0, name);
	if (found < 0)
		found = find_base_name(model, name);
	if (found >= 0)
		return found;
	if (family_is_head(family, name))
		return model->config.tied ? MODEL_NAME_BUFFER : model_tensor_of(model, ROLE_HEAD_W, -1);
	if (is_unread(model, name))
		return MODEL_NAME_BUFFER;
	for (const char *const *part = family->buffers ? family->buffers : rotary_buffers; *part; part++)
		if (ends_with_part(name, *part))
			return MODEL_NAME_BUFFER;
	return MODEL_NAME_UNKNOWN;
}

/* ---- fresh weights, sizes ---- */

int model_tensor_lr(const struct model_tensor *t)
{
	int is_b = role_facts[t->role].kind == KIND_ADAPTER && !role_is_a(t->role);

	return t->rank == 1 || role_facts[t->role].kind == KIND_BIAS_STACK || is_b ? LR_LORAPLUS : LR_USUAL;
}

int model_gradient_is_product(const struct model *model, int tensor)
{
	enum tensor_role role = model->tensors[tensor].role;

	switch (role_facts[role].kind) {
	case KIND_MATRIX:
	case KIND_RESIDUAL:
	case KIND_STACK:
	case KIND_RESIDUAL_STACK:
		return 1;
	case KIND_ADAPTER: /* the embedding's A gets columns of the tokens that occur */
		return role != ROLE_EMBED_LORA_A;
	case KIND_TABLE:
		return role_facts[role].stage == STAGE_HEAD || (role == ROLE_EMBED && model->config.tied);
	default:
		return 0;
	}
}

int64_t model_head_rows(int64_t V, struct device_piece piece)
{
	int64_t rows = min_i64(piece.bytes / (4 * V), piece.rows), small = (32 << 20) / (4 * V);

	rows = min_i64(max_i64(rows, small), 4096);
	rows = rows / 64 * 64;
	return rows > 64 ? rows : 64;
}
