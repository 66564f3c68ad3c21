/* Gemma 4, text only: Gemma 3 with other heads in full layers, norms of v, a scalar behind each block. */
#include "model/families/families.h"

#include "base/err.h"
#include "base/log.h"
#include "model/values.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { WITH_EXPERTS = 1 }; /* a set of tensors */

static const struct family_tensor gemma4_tensors[] = {
        LLAMA_EMBED,
        TENSOR(LAYER_SCALAR, "layer_scalar"),
        TENSOR(Q_W, "self_attn.q_proj.weight"),
        TENSOR_IF(Q_B, "self_attn.q_proj.bias", "attention_bias", 0),
        LLAMA_HEAD_NORMS,
        TENSOR(V_NORM_W, "self_attn.v_norm.weight"), /* stands for its place: it has no tensor */
        TENSOR(K_W, "self_attn.k_proj.weight"),
        TENSOR_IF(K_B, "self_attn.k_proj.bias", "attention_bias", 0),
        TENSOR(V_W, "self_attn.v_proj.weight"),
        TENSOR_IF(V_B, "self_attn.v_proj.bias", "attention_bias", 0),
        TENSOR(O_W, "self_attn.o_proj.weight"),
        TENSOR_IF(O_B, "self_attn.o_proj.bias", "attention_bias", 0),
        LLAMA_MLP,
        /* with experts the MLP is the shared one */
        TENSOR_IN(WITH_EXPERTS, SHARED_GATE_W, "mlp.gate_proj.weight"),
        TENSOR_IN(WITH_EXPERTS, SHARED_UP_W, "mlp.up_proj.weight"),
        TENSOR_IN(WITH_EXPERTS, SHARED_DOWN_W, "mlp.down_proj.weight"),
        GEMMA_NORMS,
        TENSOR_IN(WITH_EXPERTS, SUM_POST_NORM_W, "post_feedforward_layernorm.weight"),
        TENSOR(INPUT_GATE_W, "per_layer_input_gate.weight"),
        TENSOR(INPUT_W, "per_layer_projection.weight"),
        TENSOR(POST_INPUT_NORM_W, "post_per_layer_input_norm.weight"),
        TENSOR_IN(WITH_EXPERTS, ROUTER_NORM_W, "router.scale"),
        TENSOR_IN(WITH_EXPERTS, EXPERT_SCALE, "router.per_expert_scale"),
        TENSOR_IN(WITH_EXPERTS, ROUTER_W, "router.proj.weight"),
        TENSOR_IN(WITH_EXPERTS, EXPERTS_GATE_UP_W, "experts.gate_up_proj"),
        TENSOR_IN(WITH_EXPERTS, EXPERTS_DOWN_W, "experts.down_proj"),
        TENSOR_IN(WITH_EXPERTS, SHARED_POST_NORM_W, "post_feedforward_layernorm_1.weight"),
        TENSOR_IN(WITH_EXPERTS, EXPERTS_POST_NORM_W, "post_feedforward_layernorm_2.weight"),
        TENSOR_IN(WITH_EXPERTS, EXPERTS_NORM_W, "pre_feedforward_layernorm_2.weight"),
        TENSOR(FINAL_NORM_W, "norm.weight"),
        TENSOR(INPUTS_TABLE, "embed_tokens_per_layer.weight"),
        TENSOR(INPUTS_W, "per_layer_model_projection.weight"),
        TENSOR(INPUTS_NORM_W, "per_layer_projection_norm.weight"),
        TENSOR(HEAD_W, "lm_head.weight"),
        TENSORS_END,
};

static int is_full(const struct block_config *b)
{
	return !b->window;
}

/* One object of per_layer_config. */
static void read_layer(
        struct config_reader *r, struct model_config *c, const char *layer, const json_t *object)
{
	struct config_reader o = {.object = object, .where = r->where};
	const char *key;
	json_t *value;
	char *end;
	long l = strtol(layer, &end, 10);

	if (*end || end == layer || l < 0 || l >= c->L || !json_is_object(object)) {
		config_fail(r, ERR_INPUT,
		        "per_layer_config has \"%.20s\"; it must have objects by the number of a layer, 0 .. "
		        "%" PRId64,
		        layer, c->L - 1);
		return;
	}
	json_object_foreach((json_t *)object, key, value)
	{
		if (strcmp(key, "head_dim") && strcmp(key, "num_key_value_heads"))
			config_fail(r, ERR_UNSUPPORTED,
			        "per_layer_config: layer %ld: %.60s is not supported; supported: head_dim, "
			        "num_key_value_heads",
			        l, key);
	}
	config_read_size(&o, "head_dim", &c->block[l].D);
	config_read_size(&o, "num_key_value_heads", &c->block[l].KV);
	if (o.err && !r->err)
		r->err = o.err;
}

/* Newer files say what differs layer by layer. Older ones have keys for all layers without a window. */
static void read_layers(struct config_reader *r, struct model_config *c, int shares_k)
{
	int64_t D = 512, KV = 0;
	const char *layer;
	json_t *object, *layers = NULL;
	int found = json_get_object(r->object, r->where, "per_layer_config", &layers);

	if (found < 0)
		r->err = found;
	if (found) {
		json_object_foreach(layers, layer, object)
		{
			read_layer(r, c, layer, object);
		}
		return;
	}
	if (config_is_null(r, "global_head_dim"))
		config_fail(r, ERR_INPUT, "global_head_dim is null; it must be a number");
	config_read_size(r, "global_head_dim", &D);
	config_read_size(r, "num_global_key_value_heads", &KV);
	for (int64_t l = 0; l < c->L; l++)
		if (is_full(&c->block[l])) {
			c->block[l].D = D;
			c->block[l].KV = shares_k ? KV : 0; /* 0: as all */
		}
}

/* transformers keeps rotary settings by kind of layer, so the heads of a kind have one size. */
static void check_layers(struct config_reader *r, const struct model_config *c)
{
	int64_t seen[2] = {0, 0};

	for (int64_t l = 0; l < c->L && !r->err; l++) {
		const struct block_config *b = &c->block[l];
		int64_t D = b->D ? b->D : c->D, KV = b->KV ? b->KV : c->KV, *of = &seen[is_full(b)];

		if (c->H % KV)
			config_fail(r, ERR_INPUT,
			        "layer %" PRId64 ": num_attention_heads %" PRId64
			        " is not a multiple of num_key_value_heads %" PRId64,
			        l, c->H, KV);
		if (*of && *of != D)
			config_fail(r, ERR_UNSUPPORTED,
			        "layer %" PRId64 ": head_dim is %" PRId64
			        ", but another layer of its kind has %" PRId64,
			        l, D, *of);
		*of = D;
	}
}

static void gemma4_sizes(struct config_reader *r, struct model_config *c)
{
	struct block_config *last = &c->block[c->L - 1];
	int shares_k = 0;

	if (last->window && json_object_get(r->object, "layer_types"))
		log_warn("%s: the last layer sees whole texts, as in transformers, although layer_types says "
		         "sliding_attention",
		        r->where);
	last->window = 0;
	config_read_flag(r, "attention_k_eq_v", &shares_k);
	if (!r->err)
		read_layers(r, c, shares_k);
	if (!r->err)
		check_layers(r, c);
}

/* Refuses attention to later tokens. */
static void refuse_others(struct config_reader *r)
{
	const json_t *both = json_object_get(r->object, "use_bidirectional_attention");

	if (json_is_true(both) || (json_is_string(both) && !strcmp(json_string_value(both), "all")))
		config_fail(r, ERR_UNSUPPORTED, "use_bidirectional_attention is %s: not supported",
		        json_is_true(both) ? "true" : "all");
	else if (both && !json_is_null(both) && !json_is_false(both) &&
	         (!json_is_string(both) || strcmp(json_string_value(both), "vision")))
		config_fail(r, ERR_INPUT, "use_bidirectional_attention must be null, \"vision\" or \"all\"");
}

/* The last layer of the same kind before the first that shares. -1: none. */
static int64_t producer_of(const struct model_config *c, int64_t first, int64_t layer)
{
	int64_t l = first - 1;

	while (l >= 0 && is_full(&c->block[l]) != is_full(&c->block[layer]))
		l--;
	return l;
}

/* The last layers read keys and values of earlier ones. Their MLP may be twice as wide. */
static void share(struct config_reader *r, struct model_config *c)
{
	static const enum tensor_role dropped[] = {
	        ROLE_K_W, ROLE_K_B, ROLE_V_W, ROLE_V_B, ROLE_K_NORM_W, ROLE_V_NORM_W};
	int64_t shared = 0, value[2] = {-1, -1};
	int is_wide = 0;

	config_read_int(r, "num_kv_shared_layers", &shared, 0, c->L);
	config_read_flag(r, "use_double_wide_mlp", &is_wide);
	for (int64_t l = c->L - shared; l < c->L && !r->err; l++) {
		struct block_config *b = &c->block[l];
		int64_t from = producer_of(c, c->L - shared, l), *of = &value[is_full(b)];
		const struct block_config *maker = from < 0 ? NULL : &c->block[from];

		if (!maker) {
			config_fail(r, ERR_INPUT,
			        "num_kv_shared_layers is %" PRId64
			        ": no layer before these is of the kind of "
			        "layer %" PRId64,
			        shared, l);
			return;
		}
		if (b->KV != maker->KV) {
			config_fail(r, ERR_UNSUPPORTED,
			        "layer %" PRId64 " shares keys and values with layer %" PRId64
			        ", which has another num_key_value_heads",
			        l, from);
			return;
		}
		for (size_t i = 0; i < sizeof(dropped) / sizeof(*dropped); i++)
			b->has[dropped[i]] = 0;
		b->F = is_wide ? 2 * c->F : 0;
		if (*of < 0)
			*of = config_value_add(c,
			        2 * (maker->KV ? maker->KV : c->KV) * (maker->D ? maker->D : c->D),
			        (struct stage_place){STAGE_ATTN, (int)from});
		r->err = *of < 0 ? (int)*of
		                 : config_value_read(c, (int)*of, (struct stage_place){STAGE_ATTN, (int)l});
	}
}

/* A part of the embedding for each layer. 0 numbers: there is none. */
static void read_inputs(struct config_reader *r, struct model_config *c)
{
	static const enum tensor_role roles[] = {ROLE_INPUTS_TABLE, ROLE_INPUTS_W, ROLE_INPUTS_NORM_W,
	        ROLE_INPUT_GATE_W, ROLE_INPUT_W, ROLE_POST_INPUT_NORM_W};

	if (c->inputs_vocab) { /* the 12B has no such keys */
		config_read_int(
		        r, "hidden_size_per_layer_input", &c->input_columns, 0, CONFIG_SIZE_MAX / c->L);
		config_read_int(r, "vocab_size_per_layer_input", &c->inputs_vocab, 1, INT32_MAX);
	}
	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles) && !c->input_columns; i++)
		config_set_has(c, roles[i], 0);
	if (c->input_columns && c->inputs_vocab < c->V)
		config_fail(r, ERR_UNSUPPORTED,
		        "vocab_size_per_layer_input is %" PRId64 ", less than vocab_size, %" PRId64
		        ": not supported",
		        c->inputs_vocab, c->V);
	for (int64_t l = 0; l < c->L && c->input_columns && !r->err; l++) {
		int value = config_value_add(c, c->input_columns, (struct stage_place){STAGE_INPUTS, -1});

		r->err = value < 0 ? value
		                   : config_value_read(c, value, (struct stage_place){STAGE_INPUT, (int)l});
	}
}

/* Experts beside the MLP of each layer, with norms of their own. */
static void read_experts(struct config_reader *r, struct model_config *c)
{
	static const struct experts_keys keys = {
	        .count = {"num_experts"}, .chosen = "top_k_experts", .inner = "moe_intermediate_size"};
	static const enum tensor_role norms[] = {ROLE_EXPERTS_NORM_W, ROLE_ROUTER_NORM_W,
	        ROLE_SHARED_POST_NORM_W, ROLE_EXPERTS_POST_NORM_W, ROLE_SUM_POST_NORM_W};
	struct experts_config e = {.shared = c->F, .is_normed = 1, .logit_scale = 1 / sqrt((double)c->C)};
	int is_on = 0;

	config_read_flag(r, "enable_moe_block", &is_on);
	for (int64_t l = 0; l < c->L && !is_on; l++)
		config_set_sparse(&c->block[l], &e, 0);
	for (size_t i = 0; i < sizeof(norms) / sizeof(*norms) && !is_on; i++)
		config_set_has(c, norms[i], 0);
	if (!is_on)
		return;
	if (!config_has(r, "num_experts") || !config_has(r, "top_k_experts") ||
	        !config_has(r, "moe_intermediate_size"))
		config_fail(r, ERR_INPUT,
		        "enable_moe_block needs num_experts, top_k_experts and moe_intermediate_size");
	config_read_experts(r, &e, &keys);
	c->tensor_set = WITH_EXPERTS;
	config_set_all_sparse(r, c, &e);
	for (int64_t l = 0; l < c->L; l++)
		c->block[l].experts.shared = c->block[l].F ? c->block[l].F : c->F;
	config_set_has(c, ROLE_POST_NORM2_W, 0);
}

/* transformers knows no older spelling, and needs the settings of each kind of layer. */
static void check_rope(struct config_reader *r, const struct model_config *c)
{
	static const char *const names[] = {"full_attention", "sliding_attention"};
	const json_t *sets = json_object_get(r->object, "rope_parameters");

	if (config_has(r, "rope_scaling"))
		config_fail(r, ERR_UNSUPPORTED, "rope_scaling is not supported; Gemma 4 has rope_parameters");
	for (int64_t l = 0; l < c->L && config_has(r, "rope_parameters"); l++)
		if (!json_is_object(json_object_get(sets, names[!is_full(&c->block[l])])))
			config_fail(r, ERR_INPUT, "rope_parameters has no %s", names[!is_full(&c->block[l])]);
}

static void gemma4_read(struct config_reader *r, struct model_config *c)
{
	int shares_k = 0;

	refuse_others(r);
	check_rope(r, c);
	config_read_flag(r, "attention_k_eq_v", &shares_k);
	c->norm_of[ROLE_V_NORM_W].is_plain = 1;
	c->embed_scale = sqrt((double)c->C);
	c->embed_scale_rounds = 1;
	c->attention_scale = 1;
	gemma2_read_cap(r, "final_logit_softcapping", &c->logit_cap);
	for (int64_t l = 0; l < c->L && !r->err; l++) {
		struct block_config *b = &c->block[l];

		if (shares_k && is_full(b))
			b->has[ROLE_V_W] = b->has[ROLE_V_B] = 0;
	}
	if (!r->err)
		share(r, c);
	if (!r->err)
		read_inputs(r, c);
	if (!r->err)
		read_experts(r, c);
}

#define GEMMA4_DEFAULTS                                                                                      \
	.V = 262144, .C = 2304, .F = 9216, .L = 30, .H = 8, .KV = 4, .D = 256, .norm_epsilon = 1e-6,         \
	.act = ACT_GELU_TANH, .tied = 1, .eos_ids = {1}, .eos_count = 1, .bos_id = 2, .pad_id = 0
#define GEMMA4_ROPE                                                                                          \
	.rope = {.theta_otherwise = 1e6,                                                                     \
	        .two_sets = 1,                                                                               \
	        .local_theta_otherwise = 1e4,                                                                \
	        .proportional = 1,                                                                           \
	        .otherwise = {.kind = ROPE_PROPORTIONAL,                                                     \
	                .theta = 1e6,                                                                        \
	                .factor = 1,                                                                         \
	                .attention_factor = 1,                                                               \
	                .partial = 0.25}}

const struct model_family family_gemma4_text = {
        .has_router_modules = 1,
        .model_type = "gemma4_text",
        .base_class = "Gemma4TextModel",
        .causal_class = "Gemma4ForCausalLM",
        .tensors = gemma4_tensors,
        .defaults = {GEMMA4_DEFAULTS, .max_positions = 131072, .input_columns = 256, .inputs_vocab = 262144},
        .keys = {.act = "hidden_activation"},
        .window = {.read = 1, .needed = 1, .otherwise = 512, .full_every = 6},
        GEMMA4_ROPE,
        .sizes = gemma4_sizes,
        .read = gemma4_read,
};

const struct model_family family_gemma4_unified_text = {
        .has_router_modules = 1,
        .model_type = "gemma4_unified_text",
        .base_class = "Gemma4UnifiedTextModel",
        .causal_class = "Gemma4UnifiedForCausalLM",
        .tensors = gemma4_tensors,
        .defaults = {GEMMA4_DEFAULTS, .max_positions = 262144},
        .keys = {.act = "hidden_activation"},
        .window = {.read = 1, .needed = 1, .otherwise = 1024, .full_every = 6},
        GEMMA4_ROPE,
        .sizes = gemma4_sizes,
        .read = gemma4_read,
};
