#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "model/parts.h"

#include <string.h>

enum { CONFIG_MAX_BYTES = 16 << 20 };

/* ---- families ---- */

static const struct model_family *const families[] = {
        &family_llama,
        &family_mistral,
        &family_qwen2,
        &family_qwen3,
        &family_gpt2,
        &family_gpt_neox,
};

const struct model_family *family_find(const char *model_type)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
		if (!strcmp(families[i]->model_type, model_type))
			return families[i];
	return NULL;
}

const char *family_names(void)
{
	return "llama, mistral, qwen2, qwen3, gpt2, gpt_neox";
}

/* ---- the tensor table ---- */

static int role_in_block(enum tensor_role role)
{
	return role >= ROLE_NORM1_W && role <= ROLE_DOWN_B;
}

struct shape {
	int64_t rows, cols; /* cols 0: rank 1; rows 0: this model has no such tensor */
};

/* A matrix from `in` to `out`, as this model stores those of its blocks. */
static struct shape block_matrix(const struct model_config *c, int64_t out, int64_t in)
{
	return c->weight_in_out ? (struct shape){in, out} : (struct shape){out, in};
}

static struct shape vector(int has, int64_t count)
{
	return (struct shape){has ? count : 0, 0};
}

static struct shape block_shape(const struct model_config *c, enum tensor_role role)
{
	int separate = c->qkv == QKV_SEPARATE;
	int64_t q = c->H * c->D, kv = c->KV * c->D;
	struct shape none = {0, 0};

	switch (role) {
	case ROLE_NORM1_W:
	case ROLE_NORM2_W:
		return vector(1, c->C);
	case ROLE_NORM1_B:
	case ROLE_NORM2_B:
		return vector(c->norm_bias, c->C);
	case ROLE_QKV_W:
		return separate ? none : block_matrix(c, q + 2 * kv, c->C);
	case ROLE_QKV_B:
		return vector(!separate && c->q_bias, q + 2 * kv);
	case ROLE_Q_W:
		return separate ? block_matrix(c, q, c->C) : none;
	case ROLE_Q_B:
		return vector(separate && c->q_bias, q);
	case ROLE_K_W:
	case ROLE_V_W:
		return separate ? block_matrix(c, kv, c->C) : none;
	case ROLE_K_B:
		return vector(separate && c->k_bias, kv);
	case ROLE_V_B:
		return vector(separate && c->v_bias, kv);
	case ROLE_Q_NORM_W:
	case ROLE_K_NORM_W:
		return vector(c->qk_norm, c->D);
	case ROLE_O_W:
		return block_matrix(c, c->C, q);
	case ROLE_O_B:
		return vector(c->o_bias, c->C);
	case ROLE_GATE_W:
		return c->gated ? block_matrix(c, c->F, c->C) : none;
	case ROLE_GATE_B:
		return vector(c->gated && c->mlp_bias, c->F);
	case ROLE_UP_W:
		return block_matrix(c, c->F, c->C);
	case ROLE_UP_B:
		return vector(c->mlp_bias, c->F);
	case ROLE_DOWN_W:
		return block_matrix(c, c->C, c->F);
	case ROLE_DOWN_B:
		return vector(c->mlp_bias, c->C);
	default:
		return none;
	}
}

static struct shape role_shape(const struct model_config *c, enum tensor_role role)
{
	switch (role) {
	case ROLE_EMBED:
		return (struct shape){c->V, c->C};
	case ROLE_POSITION:
		return (struct shape){c->learned_positions ? c->max_positions : 0, c->C};
	case ROLE_FINAL_NORM_W:
		return vector(1, c->C);
	case ROLE_FINAL_NORM_B:
		return vector(c->norm_bias, c->C);
	case ROLE_HEAD_W:
		return (struct shape){c->tied ? 0 : c->V, c->C};
	case ROLE_HEAD_B:
		return vector(c->head_bias, c->V);
	default:
		return block_shape(c, role);
	}
}

static int tensor_add(struct model *model, const struct family_tensor *part, int layer, uint64_t *total)
{
	const struct model_family *family = model->family;
	struct shape shape = role_shape(&model->config, part->role);
	struct model_tensor *t = &model->tensors[model->tensor_count];
	int row = layer < 0 ? (int)model->config.L : layer, err;
	uint64_t count;

	if (!shape.rows)
		return 0;
	*t = (struct model_tensor){.role = part->role,
	        .layer = layer,
	        .rank = shape.cols ? 2 : 1,
	        .shape = {shape.rows, shape.cols ? shape.cols : 1},
	        .decay = shape.cols > 0};
	t->count = t->shape[0] * t->shape[1]; /* at most 2^31 * 2^24 */
	err = size_add(total, *total, (uint64_t)t->count);
	if (!err)
		err = size_mul(&count, *total, 16); /* bytes of all planes stay countable */
	if (err || *total > INT64_MAX / 16)
		return err_set(ERR_RANGE, "the model has more parameters than can be counted");
	if (layer >= 0)
		t->name = mem_printf("%s%s.%d.%s", family->prefix, family->blocks, layer, part->name);
	else if (part->role == ROLE_HEAD_W || part->role == ROLE_HEAD_B)
		t->name = mem_strdup(part->name);
	else
		t->name = mem_printf("%s%s", family->prefix, part->name);
	if (!t->name)
		return ERR_NOMEM;
	model->role_tensor[(int64_t)row * ROLE_COUNT + part->role] = model->tensor_count++;
	return 0;
}

/* The family's list, with its run of block tensors repeated for every block. */
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
	for (; part->name && !role_in_block(part->role) && !err; part++)
		err = tensor_add(model, part, -1, &total);
	for (int64_t l = 0; l < L && !err; l++)
		for (const struct family_tensor *p = part; p->name && role_in_block(p->role) && !err; p++)
			err = tensor_add(model, p, (int)l, &total);
	while (part->name && role_in_block(part->role))
		part++;
	for (; part->name && !err; part++)
		err = tensor_add(model, part, -1, &total);
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

/* ---- stages ---- */

static void stage_add(struct model *model, enum stage_kind kind, int layer, const enum tensor_role *roles)
{
	struct model_stage *stage = &model->stages[model->stage_count++];

	stage->kind = kind;
	stage->layer = layer;
	for (; *roles != ROLE_COUNT; roles++) {
		int tensor = model_tensor_of(model, *roles, role_in_block(*roles) ? layer : -1);

		if (tensor >= 0)
			stage->tensor[stage->tensor_count++] = tensor;
	}
}

static int stages_build(struct model *model)
{
	static const enum tensor_role embed[] = {ROLE_EMBED, ROLE_POSITION, ROLE_COUNT};
	static const enum tensor_role attn[] = {ROLE_NORM1_W, ROLE_NORM1_B, ROLE_QKV_W, ROLE_QKV_B, ROLE_Q_W,
	        ROLE_Q_B, ROLE_K_W, ROLE_K_B, ROLE_V_W, ROLE_V_B, ROLE_Q_NORM_W, ROLE_K_NORM_W, ROLE_O_W,
	        ROLE_O_B, ROLE_COUNT};
	static const enum tensor_role gate[] = {
	        ROLE_NORM2_W, ROLE_NORM2_B, ROLE_GATE_W, ROLE_GATE_B, ROLE_COUNT};
	static const enum tensor_role up[] = {ROLE_UP_W, ROLE_UP_B, ROLE_COUNT};
	static const enum tensor_role norm_up[] = {
	        ROLE_NORM2_W, ROLE_NORM2_B, ROLE_UP_W, ROLE_UP_B, ROLE_COUNT};
	static const enum tensor_role down[] = {ROLE_DOWN_W, ROLE_DOWN_B, ROLE_COUNT};
	static const enum tensor_role head[] = {
	        ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B, ROLE_HEAD_W, ROLE_HEAD_B, ROLE_COUNT};
	static const enum tensor_role tied_head[] = {
	        ROLE_FINAL_NORM_W, ROLE_FINAL_NORM_B, ROLE_EMBED, ROLE_HEAD_B, ROLE_COUNT};
	const struct model_config *c = &model->config;

	model->stages = mem_alloc((size_t)(4 * c->L + 2), sizeof(*model->stages));
	if (!model->stages)
		return ERR_NOMEM;
	stage_add(model, STAGE_EMBED, -1, embed);
	for (int l = 0; l < c->L; l++) {
		stage_add(model, STAGE_ATTN, l, attn);
		if (c->gated)
			stage_add(model, STAGE_GATE, l, gate);
		stage_add(model, STAGE_UP, l, c->gated ? up : norm_up);
		stage_add(model, STAGE_DOWN, l, down);
	}
	stage_add(model, STAGE_HEAD, -1, c->tied ? tied_head : head);
	return 0;
}

/* ---- open and close ---- */

static void tables_free(struct model *model)
{
	for (int i = 0; i < model->tensor_count; i++)
		mem_free(model->tensors[i].name);
	mem_free(model->tensors);
	mem_free(model->role_tensor);
	mem_free(model->stages);
	mem_free(model->by_name);
}

static int tables_build(struct model *model)
{
	int err = tensors_build(model);

	if (!err)
		err = names_build(model);
	if (!err)
		err = stages_build(model);
	return err;
}

int model_open(struct model **model, const json_t *config, const char *where)
{
	struct model *m = mem_alloc(1, sizeof(*m));
	int err;

	*model = NULL;
	if (!m)
		return ERR_NOMEM;
	err = model_config_read(&m->config, &m->family, config, where);
	if (!err) {
		m->prefix = m->family->prefix;
		err = tables_build(m);
		if (err == ERR_RANGE)
			err = err_set(ERR_INPUT, "%s: %s", where, err_text());
	}
	if (err)
		model_close(m);
	else
		*model = m;
	return err;
}

static int read_generation_config(struct model *model, const char *dir)
{
	json_t *config = NULL;
	char *file = file_join(dir, "generation_config.json");
	struct config_reader r = {.where = file};

	if (!file)
		return ERR_NOMEM;
	if (file_kind_of(file) != FILE_NONE)
		r.err = json_read_file(&config, file, CONFIG_MAX_BYTES);
	r.object = config;
	if (!r.err && config_has(&r, "eos_token_id"))
		config_read_eos(&r, &model->config);
	json_decref(config);
	mem_free(file);
	return r.err;
}

int model_open_path(struct model **model, const char *path)
{
	json_t *config = NULL;
	int is_dir = file_kind_of(path) == FILE_DIR;
	char *file = is_dir ? file_join(path, "config.json") : mem_strdup(path);
	int err = file ? json_read_file(&config, file, CONFIG_MAX_BYTES) : ERR_NOMEM;

	*model = NULL;
	if (!err)
		err = model_open(model, config, file);
	if (!err && is_dir)
		err = read_generation_config(*model, path);
	if (err) {
		model_close(*model);
		*model = NULL;
	}
	json_decref(config);
	mem_free(file);
	return err;
}

void model_close(struct model *model)
{
	if (!model)
		return;
	tables_free(model);
	model_config_free(&model->config);
	mem_free(model);
}

int model_untie(struct model *model)
{
	struct model untied = {.config = model->config, .family = model->family, .prefix = model->prefix};
	int err;

	if (!model->config.tied)
		return 0;
	untied.config.tied = 0;
	err = tables_build(&untied);
	if (err) {
		tables_free(&untied);
		return err;
	}
	tables_free(model);
	*model = untied;
	return 0;
}

/* ---- looking up ---- */

int model_tensor_of(const struct model *model, enum tensor_role role, int layer)
{
	int64_t row = layer < 0 ? model->config.L : layer;

	return model->role_tensor[row * ROLE_COUNT + role];
}

/* The table's tensor that is called prefix + name. */
static int find_name(const struct model *model, const char *prefix, const char *name)
{
	size_t len = strlen(prefix);
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

/* `name` is `part`, or ends with a dot and `part`. */
static int ends_with_part(const char *name, const char *part)
{
	size_t len = strlen(name), part_len = strlen(part);

	return len >= part_len && !strcmp(name + len - part_len, part) &&
	       (len == part_len || name[len - part_len - 1] == '.');
}

static const char *head_name(const struct model_family *family)
{
	const struct family_tensor *part = family->tensors;

	while (part->role != ROLE_HEAD_W)
		part++;
	return part->name;
}

int model_find_tensor(const struct model *model, const char *name)
{
	const struct model_family *family = model->family;
	int found = find_name(model, "", name);

	if (found < 0)
		found = find_name(model, model->prefix, name);
	if (found >= 0)
		return found;
	if (!strcmp(name, head_name(family)) || (family->head_alias && !strcmp(name, family->head_alias)))
		return model->config.tied ? MODEL_NAME_BUFFER : model_tensor_of(model, ROLE_HEAD_W, -1);
	for (const char *const *part = family->buffers; *part; part++)
		if (ends_with_part(name, *part))
			return MODEL_NAME_BUFFER;
	return MODEL_NAME_UNKNOWN;
}

/* ---- fresh weights, cost ---- */

float model_init_value(const struct model *model, int tensor, int64_t index, uint64_t seed)
{
	const struct model_config *c = &model->config;
	const struct model_tensor *t = &model->tensors[tensor];
	int residual = t->role == ROLE_O_W || t->role == ROLE_DOWN_W;
	double deviation = residual ? c->residual_initializer_range : c->initializer_range;

	switch (t->role) {
	case ROLE_NORM1_W:
	case ROLE_NORM2_W:
	case ROLE_Q_NORM_W:
	case ROLE_K_NORM_W:
	case ROLE_FINAL_NORM_W:
		return 1;
	case ROLE_EMBED:
		if (c->pad_id >= 0 && index / c->C == c->pad_id)
			return 0;
		break;
	default:
		if (t->rank == 1)
			return 0;
	}
	return (float)(deviation * rng_normal(seed, (uint64_t)tensor, (uint64_t)index));
}

double model_flops_per_token(const struct model *model, int64_t row_tokens)
{
	const struct model_config *c = &model->config;
	double matrices = (double)c->C * (double)c->V;

	for (int i = 0; i < model->tensor_count; i++)
		if (model->tensors[i].layer >= 0 && model->tensors[i].rank == 2)
			matrices += (double)model->tensors[i].count;
	return 6 * matrices + 6 * (double)c->L * (double)(c->H * c->D) * (double)row_tokens;
}
