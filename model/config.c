/* Reads a config.json on top of the table of its family. */
#include "model/config.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/family.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---- keys ---- */

void config_fail(struct config_reader *r, int code, const char *fmt, ...)
{
	va_list ap;

	if (r->err)
		return;
	va_start(ap, fmt);
	r->err = err_setv(code, fmt, ap);
	va_end(ap);
	err_note(code, "%s", r->where);
}

int config_has(const struct config_reader *r, const char *key)
{
	const json_t *value = json_object_get(r->object, key);

	return value && !json_is_null(value);
}

int config_is_null(const struct config_reader *r, const char *key)
{
	return json_is_null(json_object_get(r->object, key));
}

void config_read_int(struct config_reader *r, const char *key, int64_t *out, int64_t least, int64_t most)
{
	int64_t value = 0;
	int found;

	if (r->err)
		return;
	found = json_get_int(r->object, r->where, key, &value);
	if (found < 0)
		r->err = found;
	else if (found && (value < least || value > most))
		config_fail(r, ERR_INPUT, "%s is %" PRId64 "; it must be %" PRId64 " .. %" PRId64, key, value,
		        least, most);
	else if (found)
		*out = value;
}

void config_read_size(struct config_reader *r, const char *key, int64_t *out)
{
	config_read_int(r, key, out, 1, CONFIG_SIZE_MAX);
}

void config_read_num(struct config_reader *r, const char *key, double *out)
{
	double value = 0;
	int found;

	if (r->err)
		return;
	found = json_get_num(r->object, r->where, key, &value);
	if (found < 0)
		r->err = found;
	else if (found && !isfinite(value))
		config_fail(r, ERR_INPUT, "%s is not a finite number", key);
	else if (found)
		*out = value;
}

void config_read_flag(struct config_reader *r, const char *key, int *out)
{
	int found;

	if (r->err)
		return;
	found = json_get_bool(r->object, r->where, key, out);
	if (found < 0)
		r->err = found;
}

void config_read_str(struct config_reader *r, const char *key, const char **out)
{
	int found;

	if (r->err)
		return;
	found = json_get_str(r->object, r->where, key, out);
	if (found < 0)
		r->err = found;
}

void config_refuse_flag(struct config_reader *r, const char *key)
{
	int is_on = 0;

	config_read_flag(r, key, &is_on);
	if (is_on)
		config_fail(r, ERR_UNSUPPORTED, "%s is true: not supported", key);
}

void config_check_positive(struct config_reader *r, const char *key, double value)
{
	if (!(value > 0) || !isfinite(value))
		config_fail(r, ERR_INPUT, "%s is %g; it must be above 0", key, value);
}

void config_read_multiplier(struct config_reader *r, const char *key, double *out)
{
	*out = 1;
	config_read_num(r, key, out);
	if (!r->err)
		config_check_positive(r, key, *out);
}

void config_check_epsilon(struct config_reader *r, const char *key, double value)
{
	if (!(value >= 0) || !isfinite(value))
		config_fail(r, ERR_INPUT, "%s is %g; it must not be negative", key, value);
}

void config_warn_ignored(const struct config_reader *r, const char *key, const char *why)
{
	if (!r->err && config_has(r, key) && !json_is_false(json_object_get(r->object, key)))
		log_warn("%s: %s is ignored: %s", r->where, key, why);
}

/* ---- activations ---- */

static const struct {
	const char *name;
	int act; /* enum act_kind; -1: known to transformers but not supported */
} acts[] = {
        {"silu", ACT_SILU},
        {"swish", ACT_SILU},
        {"gelu", ACT_GELU},
        {"gelu_python", ACT_GELU},
        {"gelu_new", ACT_GELU_TANH},
        {"gelu_pytorch_tanh", ACT_GELU_TANH},
        {"gelu_python_tanh", ACT_GELU_TANH},
        {"gelu_fast", ACT_GELU_TANH},
        {"gelu_accurate", ACT_GELU_TANH},
        {"quick_gelu", ACT_GELU_QUICK},
        {"relu", ACT_RELU},
        {"relu2", ACT_RELU2},
        {"sigmoid", ACT_SIGMOID},
        {"tanh", ACT_TANH},
        {"linear", ACT_LINEAR},
        {"gelu_10", -1},
        {"hardswish", -1},
        {"laplace", -1},
        {"leaky_relu", -1},
        {"mish", -1},
        {"prelu", -1},
        {"relu6", -1},
        {"sqrtsoftplus", -1},
        {"xielu", -1},
};

const char *config_act_name(enum act_kind act)
{
	for (size_t i = 0; i < sizeof(acts) / sizeof(*acts); i++)
		if (acts[i].act == (int)act)
			return acts[i].name;
	return "";
}

void config_read_act(struct config_reader *r, const char *key, enum act_kind *out)
{
	static const char done[] = "silu, swish, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, quick_gelu, "
	                           "relu, relu2, sigmoid, tanh, linear";
	const char *name = NULL;

	config_read_str(r, key, &name);
	if (!name)
		return;
	for (size_t i = 0; i < sizeof(acts) / sizeof(*acts); i++) {
		if (strcmp(acts[i].name, name))
			continue;
		if (acts[i].act < 0)
			config_fail(r, ERR_UNSUPPORTED, "%s \"%s\" is not supported; supported: %s", key,
			        name, done);
		else
			*out = (enum act_kind)acts[i].act;
		return;
	}
	config_fail(r, ERR_INPUT, "%s \"%.60s\" is not a known activation; supported: %s", key, name, done);
}

/* ---- settings of most families ---- */

static void read_layer_list(struct config_reader *r, struct model_config *c, const char *const *keys)
{
	const json_t *list = NULL;
	const char *key = NULL;
	size_t count;

	for (int i = 0; i < 3 && keys[i] && !list; i++) {
		key = keys[i];
		list = config_has(r, key) ? json_object_get(r->object, key) : NULL;
	}
	count = json_is_string(list) ? json_string_length(list) : json_array_size(list);
	if (!r->err && list && (!count || count > CONFIG_LAYERS_MAX))
		config_fail(r, ERR_INPUT, "%s has %zu layers; it must have 1 .. %d", key, count,
		        (int)CONFIG_LAYERS_MAX);
	else if (list)
		c->L = (int64_t)count;
}

static void read_sizes(struct config_reader *r, struct model_config *c, const struct family_keys *keys)
{
	const struct {
		const char *key, *usual;
		int64_t *out, most;
	} sizes[] = {
	        {NULL, "vocab_size", &c->V, INT32_MAX},
	        {keys->hidden, "hidden_size", &c->C, CONFIG_SIZE_MAX},
	        {keys->layers, "num_hidden_layers", &c->L, CONFIG_LAYERS_MAX},
	        {keys->heads, "num_attention_heads", &c->H, CONFIG_SIZE_MAX},
	        {keys->positions, "max_position_embeddings", &c->max_positions, INT32_MAX},
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		if (sizes[i].key)
			config_read_int(r, sizes[i].key, sizes[i].out, 1, sizes[i].most);
		config_read_int(r, sizes[i].usual, sizes[i].out, 1, sizes[i].most);
	}
	read_layer_list(r, c, keys->layer_lists);
	if (!c->F)
		c->F = 4 * c->C;
	config_read_size(r, keys->inner ? keys->inner : "intermediate_size", &c->F);
	config_read_num(r, "initializer_range", &c->initializer_range);
	config_check_epsilon(r, "initializer_range", c->initializer_range);
}

static void read_kv_heads(struct config_reader *r, struct model_config *c, const struct model_family *family)
{
	if (family->one_size_of_heads || !c->KV || config_is_null(r, "num_key_value_heads"))
		c->KV = c->H;
	if (family->one_size_of_heads)
		return;
	config_read_size(r, "num_key_value_heads", &c->KV);
	if (c->H % c->KV)
		config_fail(r, ERR_INPUT,
		        "num_attention_heads %" PRId64 " is not a multiple of num_key_value_heads %" PRId64,
		        c->H, c->KV);
}

static void read_head_dim(struct config_reader *r, struct model_config *c, const struct model_family *family)
{
	const char *hidden = family->keys.hidden, *heads = family->keys.heads;
	int is_read = !family->one_size_of_heads, is_there = is_read && config_has(r, "head_dim");

	if (r->err)
		return;
	if (family->whole_heads && !is_there && c->C % c->H)
		config_fail(r, ERR_INPUT, "%s %" PRId64 " is not a multiple of %s %" PRId64,
		        hidden ? hidden : "hidden_size", c->C, heads ? heads : "num_attention_heads", c->H);
	if (c->D && is_read && config_is_null(r, "head_dim"))
		config_fail(r, ERR_INPUT, "head_dim is null; %s needs a number", family->model_type);
	if (!c->D)
		c->D = c->C / c->H;
	if (is_read)
		config_read_size(r, "head_dim", &c->D);
	if (!c->D)
		config_fail(r, ERR_INPUT,
		        "hidden_size %" PRId64 " is less than num_attention_heads %" PRId64
		        ", and there is no head_dim",
		        c->C, c->H);
}

/* A negative pad_token_id counts from the end; null is none. */
static void read_pad(struct config_reader *r, struct model_config *c)
{
	if (config_is_null(r, "pad_token_id")) {
		c->pad_id = -1;
	} else if (config_has(r, "pad_token_id")) {
		config_read_int(r, "pad_token_id", &c->pad_id, -c->V, c->V - 1);
		c->pad_id += c->pad_id < 0 ? c->V : 0;
	} else if (c->pad_id >= c->V) {
		config_fail(r, ERR_INPUT,
		        "pad_token_id is missing, and the default of this family, %" PRId64
		        ", is outside the vocabulary; set it to null for none",
		        c->pad_id);
	}
}

void config_set_has(struct model_config *c, enum tensor_role role, int is_there)
{
	if (role_facts[role].scope == SCOPE_MODEL)
		c->has[role] = (uint8_t)is_there;
	else
		for (int64_t l = 0; l < c->L; l++)
			c->block[l].has[role] = (uint8_t)is_there;
}

void config_drop_norm2(struct model_config *c)
{
	config_set_has(c, ROLE_NORM2_W, 0);
	config_set_has(c, ROLE_NORM2_B, 0);
}

void config_set_norms(struct model_config *c)
{
	for (int role = 0; role < ROLE_COUNT; role++)
		if (role_facts[role].kind == KIND_NORM)
			c->norm_of[role] =
			        (struct norm_config){c->norm_epsilon, c->norm_weight_offset, c->norm_plain};
}

/* Marks the tensors in the family's list, except those that a flag switches off. */
static void read_tensors(struct config_reader *r, struct model_config *c, const struct model_family *family)
{
	for (const struct family_tensor *t = family->tensors; t->role != ROLE_COUNT; t++) {
		int is_there = t->when ? t->otherwise : 1;

		if (t->when)
			config_read_flag(r, t->when, &is_there);
		config_set_has(c, t->role, is_there);
	}
	int last = c->is_encoder ? ROLE_HEAD_B : ROLE_CLASS_B;

	for (int role = ROLE_POOL_W; role <= last; role++) { /* model/pool.c adds them */
		c->offers[role] = c->has[role];
		c->has[role] = 0;
	}
}

static int layer_type_slides(struct config_reader *r, const json_t *types, int64_t layer)
{
	const char *type = json_string_value(json_array_get(types, (size_t)layer));

	if (type && !strcmp(type, "sliding_attention"))
		return 1;
	if (!type || (strcmp(type, "full_attention") && strcmp(type, "attention")))
		config_fail(r, ERR_UNSUPPORTED,
		        "layer_types[%" PRId64
		        "] is %.60s; only full_attention and sliding_attention are supported",
		        layer, type ? type : "no string");
	return 0;
}

void config_read_layer_windows(struct config_reader *r, struct model_config *c,
        const struct family_window *family, int64_t window, int64_t from)
{
	int64_t every = family->full_every;
	json_t *types = NULL;
	int found;

	if (r->err)
		return;
	found = json_get_array(r->object, r->where, "layer_types", &types);
	if (!found && window && family->full_every_key)
		config_read_int(r, family->full_every_key, &every, 1, INT32_MAX);
	if (r->err)
		return;
	if (found < 0)
		r->err = found;
	else if (found && (int64_t)json_array_size(types) != c->L)
		config_fail(r, ERR_INPUT, "layer_types has %zu entries; there are %" PRId64 " layers",
		        json_array_size(types), c->L);
	for (int64_t l = 0; l < c->L && !r->err; l++) {
		int slide = types ? layer_type_slides(r, types, l)
		                  : window && l >= from && (!every || (l + !family->full_first) % every);

		if (slide && types && !window)
			config_fail(r, ERR_INPUT,
			        "layer_types[%" PRId64
			        "] is sliding_attention, but sliding_window is null or not used",
			        l);
		c->block[l].window = slide ? window : 0;
	}
}

static void read_windows(struct config_reader *r, struct model_config *c, const struct family_window *family)
{
	const char *key = family->key ? family->key : "sliding_window";
	int64_t window = family->otherwise, from = family->from;
	int use = !family->use;

	if (!family->read)
		return;
	if (family->use) {
		config_read_flag(r, family->use, &use);
		config_read_int(r, "max_window_layers", &from, INT32_MIN, INT32_MAX);
	}
	config_read_int(r, key, &window, use ? 1 : INT32_MIN, INT32_MAX);
	if (!use || config_is_null(r, key))
		window = 0;
	if (!window && family->needed)
		config_fail(r, ERR_UNSUPPORTED, "%s is null; %s needs a number", key, c->model_type);
	if (window && family->both_sides)
		window = window / 2 + 1;
	for (int64_t l = 0; l < c->L && family->every_block; l++)
		c->block[l].window = window;
	if (!family->every_block)
		config_read_layer_windows(r, c, family, window, from);
}

/* ---- the whole file ---- */

/* Refuses quantized weights that ferry does not read (checkpoint/hf/hf_coded.h has those that it does). */
static void check_quantization(struct config_reader *r)
{
	static const char *const read[] = {"bitsandbytes", "fp8", "compressed-tensors", "mxfp4"};
	const json_t *value = json_object_get(r->object, "quantization_config");
	const char *method = json_string_value(json_object_get(value, "quant_method"));

	if (!value || json_is_null(value) || (json_is_object(value) && !json_object_size(value)))
		return;
	for (size_t i = 0; method && i < sizeof(read) / sizeof(*read); i++)
		if (!strcmp(method, read[i]))
			return;
	config_fail(r, ERR_UNSUPPORTED,
	        "quantization_config: quant_method %.40s is not supported; supported: bitsandbytes, fp8, "
	        "compressed-tensors, mxfp4; or use a checkpoint whose weights are fp32, fp16 or bf16",
	        method ? method : "(none)");
}

/* Refuses settings of any family that change the computation and are not supported. */
static void check_general(struct config_reader *r, const struct model_family *family)
{
	static const char *const objects[] = {"pruned_heads", "per_layer_config"};
	static const char *const flags[] = {"is_encoder_decoder", "add_cross_attention"};

	for (size_t i = 0; i < sizeof(objects) / sizeof(*objects) - (family->sizes != NULL); i++) {
		const json_t *value = json_object_get(r->object, objects[i]);

		if (value && !json_is_null(value) && !(json_is_object(value) && !json_object_size(value)))
			config_fail(r, ERR_UNSUPPORTED, "%s is not supported", objects[i]);
	}
	check_quantization(r);
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
		config_refuse_flag(r, flags[i]);
}

void config_read_eos(struct config_reader *r, struct model_config *c)
{
	const json_t *eos = json_object_get(r->object, "eos_token_id");
	size_t count = json_is_array(eos) ? json_array_size(eos) : 1;
	int kept = 0;

	if (eos)
		c->eos_count = 0;
	for (size_t i = 0; i < count && eos && !json_is_null(eos) && !r->err; i++) {
		const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;
		json_int_t value = json_integer_value(id);

		if (!json_is_integer(id))
			config_fail(r, ERR_INPUT, "eos_token_id must be an integer or a list of integers");
		else if (c->eos_count == (int)(sizeof(c->eos_ids) / sizeof(*c->eos_ids)))
			config_fail(r, ERR_UNSUPPORTED, "eos_token_id lists more than %d ids", c->eos_count);
		else
			c->eos_ids[c->eos_count++] = value;
	}
	for (int i = 0; i < c->eos_count; i++) /* drops defaults outside the vocabulary too */
		if (c->eos_ids[i] >= 0 && c->eos_ids[i] < c->V)
			c->eos_ids[kept++] = c->eos_ids[i];
	c->eos_count = kept;
}

/* Reads every spelling that families use. The default belongs to the family's own key, or to GPT-2's keys
 * (*_pdrop). */
static void read_dropout(struct config_reader *r, struct model_config *c)
{
	const char *own = c->dropout_key;
	const char *const keys[] = {own ? own : "resid_pdrop", "attention_dropout", "hidden_dropout",
	        "residual_dropout", "embedding_dropout", "resid_dropout", "embed_dropout", "embd_pdrop",
	        "attn_pdrop"};
	double otherwise = c->dropout;

	c->dropout = 0;
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		double value = (own ? !i : strstr(keys[i], "pdrop") != NULL) ? otherwise : 0;

		config_read_num(r, keys[i], &value);
		if (!(value <= c->dropout)) {
			c->dropout = value;
			c->dropout_key = keys[i];
		}
	}
}

static void read_ids(struct config_reader *r, struct model_config *c, const struct model_family *family)
{
	struct config_reader nothing = {.where = r->where};

	if (config_is_null(r, "bos_token_id"))
		c->bos_id = -1;
	config_read_int(r, "bos_token_id", &c->bos_id, INT32_MIN, INT32_MAX);
	if (c->bos_id >= c->V || c->bos_id < 0)
		c->bos_id = -1;
	config_read_eos(family->null_is_default_eos && config_is_null(r, "eos_token_id") ? &nothing : r, c);
}

/* Gives each block the sizes that its family did not set, and checks them. */
static void finish_blocks(struct config_reader *r, struct model_config *c)
{
	for (int64_t l = 0; l < c->L && !r->err; l++) {
		struct block_config *b = &c->block[l];

		b->H = b->H ? b->H : c->H;
		b->KV = b->KV ? b->KV : c->KV;
		b->D = b->D ? b->D : c->D;
		b->F = b->F ? b->F : c->F;
		b->mask = c->is_encoder ? MASK_BIDIRECTIONAL : MASK_CAUSAL;
		b->attention_scale = c->attention_scale ? c->attention_scale : 1 / sqrt((double)b->D);
		if (c->attention_scale_by_layer)
			b->attention_scale /= (double)(l + 1);
		if ((b->H + 2 * b->KV) * b->D > CONFIG_SIZE_MAX)
			config_fail(r, ERR_INPUT,
			        "%" PRId64 " heads and %" PRId64 " key/value heads of head_dim %" PRId64
			        " exceed what ferry supports",
			        b->H, b->KV, b->D);
	}
}

static void read_family(struct config_reader *r, struct model_config *c, const struct model_family *family)
{
	const char *epsilon = family->keys.epsilon ? family->keys.epsilon : "rms_norm_eps";

	read_sizes(r, c, &family->keys);
	read_kv_heads(r, c, family);
	read_head_dim(r, c, family);
	if (r->err)
		return;
	c->block = mem_alloc((size_t)c->L, sizeof(*c->block));
	if (!c->block) {
		r->err = ERR_NOMEM;
		return;
	}
	config_read_act(r, family->keys.act ? family->keys.act : "hidden_act", &c->act);
	config_read_num(r, epsilon, &c->norm_epsilon);
	config_check_epsilon(r, epsilon, c->norm_epsilon);
	config_read_flag(r, "tie_word_embeddings", &c->tied);
	if (!family->pads_nothing)
		read_pad(r, c);
	read_tensors(r, c, family);
	read_windows(r, c, &family->window);
	if (family->sizes && !r->err)
		family->sizes(r, c);
	if (!c->has[ROLE_POSITION])
		config_read_rope(r, c, &family->rope);
	for (int64_t l = 0; l < c->L && c->has[ROLE_POSITION]; l++)
		c->block[l].rope = -1;
	for (int64_t l = 0; l < c->L && family->rope.two_sets; l++)
		c->block[l].rope = c->block[l].window > 0;
	for (int i = 0; i < FAMILY_IGNORED_MAX && family->ignored[i].key; i++)
		config_warn_ignored(r, family->ignored[i].key, family->ignored[i].why);
	config_set_norms(c);
	if (family->read && !r->err)
		family->read(r, c);
}

int config_read_usual(
        struct model_config *config, const struct model_family *family, const json_t *json, const char *where)
{
	struct config_reader r = {.object = json, .where = where};

	*config = family->defaults;
	config->model_type = family->model_type;
	if (config->initializer_range == 0)
		config->initializer_range = 0.02;
	config_check_class(&r, config, family);
	check_general(&r, family);
	read_family(&r, config, family);
	finish_blocks(&r, config);
	if (!r.err)
		read_ids(&r, config, family);
	config_read_classes(&r, config, family);
	read_dropout(&r, config);
	if (config->residual_initializer_range == 0)
		config->residual_initializer_range = config->initializer_range;
	if (r.err)
		model_config_free(config);
	return r.err;
}

void model_config_free(struct model_config *config)
{
	for (int i = 0; i < ROPES_MAX; i++) {
		mem_free(config->rope[i].factors);
		config->rope[i].factors = NULL;
	}
	mem_free(config->block);
	mem_free(config->value);
	mem_free(config->value_reader);
	config->block = NULL;
	config->value = NULL;
	config->value_reader = NULL;
}
