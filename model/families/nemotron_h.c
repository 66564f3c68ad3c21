/* Nemotron-H and Nemotron 3 Nano: each layer is Mamba-2, attention without positions, an MLP without a gate,
 * or experts without gates. */
#include "model/families/families.h"

#include "base/err.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct family_tensor nemotron_h_tensors[] = {
        TENSOR(EMBED, "embeddings.weight"),
        TENSOR(NORM1_W, "norm.weight"),
        TENSOR(NORM2_W, "norm.weight"),
        MAMBA2("mixer", "use_conv_bias", 1, "use_bias", "use_bias"),
        TENSOR(Q_W, "mixer.q_proj.weight"),
        TENSOR(K_W, "mixer.k_proj.weight"),
        TENSOR(V_W, "mixer.v_proj.weight"),
        TENSOR(O_W, "mixer.o_proj.weight"),
        TENSOR(UP_W, "mixer.up_proj.weight"),
        TENSOR_IF(UP_B, "mixer.up_proj.bias", "mlp_bias", 0),
        TENSOR(DOWN_W, "mixer.down_proj.weight"),
        TENSOR_IF(DOWN_B, "mixer.down_proj.bias", "mlp_bias", 0),
        TENSOR(EXPERTS_UP_W, "mixer.experts.up_proj"),
        TENSOR(EXPERTS_DOWN_W, "mixer.experts.down_proj"),
        TENSOR(ROUTER_W, "mixer.gate.weight"),
        TENSOR(ROUTER_CHOICE_B, "mixer.gate.e_score_correction_bias"),
        TENSOR(SHARED_UP_W, "mixer.shared_experts.up_proj.weight"),
        TENSOR_IF(SHARED_UP_B, "mixer.shared_experts.up_proj.bias", "mlp_bias", 0),
        TENSOR(SHARED_DOWN_W, "mixer.shared_experts.down_proj.weight"),
        TENSOR_IF(SHARED_DOWN_B, "mixer.shared_experts.down_proj.bias", "mlp_bias", 0),
        TENSOR(EXPERTS_IN_W, "mixer.fc1_latent_proj.weight"),
        TENSOR_IF(EXPERTS_IN_B, "mixer.fc1_latent_proj.bias", "mlp_bias", 0),
        TENSOR(EXPERTS_OUT_W, "mixer.fc2_latent_proj.weight"),
        TENSOR_IF(EXPERTS_OUT_B, "mixer.fc2_latent_proj.bias", "mlp_bias", 0),
        TENSOR(FINAL_NORM_W, "norm_f.weight"),
        TENSOR(HEAD_W, "lm_head.weight"),
        TENSORS_END,
};

static const struct family_split nemotron_h_splits[] = {
        {"mixer.experts.up_proj", "mixer.experts.%d.up_proj.weight", 0, 1},
        {"mixer.experts.down_proj", "mixer.experts.%d.down_proj.weight", 0, 1},
        {0},
};

enum { LAYER_SCAN, LAYER_EXPERTS, LAYER_ATTENTION, LAYER_MLP, LAYER_KINDS };

/* The kind by a name of a list, or by a letter of a pattern; -1: unknown. */
static int kind_of(const char *name)
{
	static const char *const names[][LAYER_KINDS] = {{"linear_attention", "moe", "full_attention", "mlp"},
	        {"mamba", "moe", "attention", "mlp"}, {"M", "E", "*", "-"}};

	for (int kind = 0; name && kind < LAYER_KINDS; kind++)
		for (int i = 0; i < 3; i++)
			if (!strcmp(names[i][kind], name))
				return kind;
	return -1;
}

static int read_kind(struct config_reader *r, int64_t layer)
{
	const json_t *list = NULL;
	const char *name;
	char letter[2] = "";
	int kind;

	for (int i = 0; i < 3 && !list; i++)
		if (config_has(r, family_nemotron_h.keys.layer_lists[i]))
			list = json_object_get(r->object, family_nemotron_h.keys.layer_lists[i]);
	if (!list)
		return (int)(layer % LAYER_KINDS);
	letter[0] = json_is_string(list) ? json_string_value(list)[layer] : 0;
	name = json_is_string(list) ? letter : json_string_value(json_array_get(list, (size_t)layer));
	kind = kind_of(name);
	if (kind < 0)
		config_fail(r, ERR_UNSUPPORTED,
		        "layer %" PRId64 " is %.60s; supported: mamba, attention, mlp, moe", layer,
		        name ? name : "no string");
	return kind;
}

/* Layers clamp their steps to time_step_min, not to time_step_limit, which transformers does not read. */
static void read_scan(struct config_reader *r, struct block_config *b)
{
	static const struct scan_keys keys = {.heads = "mamba_num_heads",
	        .head_dim = "mamba_head_dim",
	        .groups = "n_groups",
	        .states = "ssm_state_size",
	        .taps = "conv_kernel",
	        .act = "mamba_hidden_act"};

	b->taps = 4;
	b->scan = (struct scan_config){0.001, INFINITY, 0};
	b->delta = (struct delta_config){8, 128, 128, 64};
	config_read_scan(r, b, &keys);
	config_read_num(r, "time_step_min", &b->scan.step_low);
	if (!r->err)
		config_check_epsilon(r, "time_step_min", b->scan.step_low);
}

static void read_experts(struct config_reader *r, struct experts_config *e)
{
	static const struct experts_keys keys = {.count = {"n_routed_experts", "num_local_experts"},
	        .chosen = "num_experts_per_tok",
	        .inner = "moe_intermediate_size",
	        .normed = "norm_topk_prob",
	        .is_grouped = 1};

	*e = (struct experts_config){
	        .count = 8, .chosen = 2, .F = 7688, .shared = 7688, .rule = ROUTE_SIGMOID, .is_normed = 1};
	config_read_experts(r, e, &keys);
	config_read_size(r, "moe_shared_expert_intermediate_size", &e->shared);
	if (!r->err && !e->count)
		config_fail(r, ERR_INPUT, "n_routed_experts is 0");
	if (config_has(r, "moe_latent_size"))
		config_read_size(r, "moe_latent_size", &e->width);
}

static void drop_narrow(struct block_config *b)
{
	static const enum tensor_role roles[] = {
	        ROLE_EXPERTS_IN_W, ROLE_EXPERTS_IN_B, ROLE_EXPERTS_OUT_W, ROLE_EXPERTS_OUT_B};

	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
		b->has[roles[i]] = 0;
}

static void block_set(
        struct block_config *b, int kind, const struct block_config *scan, const struct experts_config *e)
{
	b->rope = -1;
	b->has[kind == LAYER_SCAN || kind == LAYER_ATTENTION ? ROLE_NORM2_W : ROLE_NORM1_W] = 0;
	if (kind != LAYER_SCAN)
		config_drop_stage(b, STAGE_SCAN);
	if (kind != LAYER_ATTENTION)
		config_drop_stage(b, STAGE_ATTN);
	if (kind != LAYER_EXPERTS)
		config_drop_stage(b, STAGE_EXPERTS);
	if (kind != LAYER_MLP) {
		config_drop_stage(b, STAGE_UP);
		config_drop_stage(b, STAGE_DOWN);
	}
	if (kind == LAYER_EXPERTS)
		b->experts = *e;
	if (kind == LAYER_EXPERTS && !e->width)
		drop_narrow(b);
	if (kind != LAYER_SCAN)
		return;
	b->delta = scan->delta;
	b->scan = scan->scan;
	b->taps = scan->taps;
}

static void nemotron_h_read(struct config_reader *r, struct model_config *c)
{
	struct block_config scan = {0};
	struct experts_config experts = {0};
	int has_experts = 0;

	c->tied = 0;
	read_scan(r, &scan);
	for (int64_t l = 0; l < c->L && !r->err; l++)
		has_experts |= read_kind(r, l) == LAYER_EXPERTS;
	if (!r->err && has_experts)
		read_experts(r, &experts);
	for (int64_t l = 0; l < c->L && !r->err; l++)
		block_set(&c->block[l], read_kind(r, l), &scan, &experts);
}

/* Those of keys that transformers reads. */
static const struct family_alias nemotron_h_aliases[] = {{"n_groups", "mamba_n_groups"},
        {"conv_kernel", "mamba_d_conv"}, {"time_step_min", "mamba_dt_min"},
        {"use_conv_bias", "mamba_conv_bias"}, {0}};

const struct model_family family_nemotron_h = {
        .model_type = "nemotron_h",
        .prefix = "backbone.",
        .module_prefix = "model.",
        .peft_refuses = "out_proj",
        .peft_drops_experts = 1,
        .base_class = "NemotronHModel",
        .causal_class = "NemotronHForCausalLM",
        .tensors = nemotron_h_tensors,
        .splits = nemotron_h_splits,
        .pads_nothing = 1,
        .defaults = {.V = 131072,
                .C = 4096,
                .F = 21504,
                .L = 4,
                .H = 32,
                .KV = 8,
                .D = 128,
                .max_positions = 4096,
                .norm_epsilon = 1e-5,
                .act = ACT_RELU2,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = -1},
        .keys = {.epsilon = "layer_norm_epsilon",
                .act = "mlp_hidden_act",
                .layer_lists = {"layers_block_type", "layer_types", "hybrid_override_pattern"}},
        .aliases = nemotron_h_aliases,
        .ignored = {{"attention_bias", "this family's attention has no biases"},
                {"tie_word_embeddings", "this family's head is never the embedding"}},
        .read = nemotron_h_read,
};
