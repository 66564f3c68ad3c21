/* DeepSeek-V3: latent attention, experts in groups by a sigmoid router, and a shared one. Its first layers
 * have an MLP. DeepSeek-V2 shares the attention. */
#include "base/err.h"
#include "model/families/families.h"

#include <math.h>

static const struct family_tensor deepseek_v3_tensors[] = {
        LLAMA_EMBED,
        DEEPSEEK_ATTENTION,
        DEEPSEEK_EXPERTS,
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

/* The rotating columns are the head that rotary settings see. */
void deepseek_sizes(struct config_reader *r, struct model_config *c)
{
	struct latent_config latent = {
	        .q_rank = 1536, .kv_rank = 512, .own = 128, .shared = 64, .value = 128};

	if (config_is_null(r, "q_lora_rank"))
		latent.q_rank = 0;
	else
		config_read_size(r, "q_lora_rank", &latent.q_rank);
	config_read_size(r, "kv_lora_rank", &latent.kv_rank);
	config_read_size(r, "qk_nope_head_dim", &latent.own);
	config_read_size(r, "qk_rope_head_dim", &latent.shared);
	config_read_size(r, "v_head_dim", &latent.value);
	c->KV = c->H;
	c->D = latent.shared;
	for (int64_t l = 0; l < c->L && !r->err; l++) {
		c->block[l].latent = latent;
		c->block[l].has[latent.q_rank ? ROLE_Q_W : ROLE_Q_B_W] = 0;
		for (int role = ROLE_Q_A_W; role <= ROLE_Q_A_NORM_W && !latent.q_rank; role++)
			c->block[l].has[role] = 0;
	}
}

/* yarn may also stretch the scale of scores: mscale_all_dim of the rotary settings. */
static double yarn_stretch(struct config_reader *r, const struct model_config *c)
{
	static const char *const keys[] = {"rope_parameters", "rope_scaling"};
	double all = 0;

	for (int i = 0; i < 2 && c->rope_count && c->rope[0].kind != ROPE_DEFAULT; i++) {
		struct config_reader o = {
		        .object = json_object_get(r->object, keys[i]), .where = r->where, .err = r->err};

		if (json_is_object(o.object))
			config_read_num(&o, "mscale_all_dim", &all);
		r->err = o.err;
	}
	return all != 0 && c->rope[0].factor > 1 ? 0.1 * all * log(c->rope[0].factor) + 1 : 1;
}

/* What a head is to attention. The norms between the matrices have transformers' epsilon. */
void deepseek_read_attention(struct config_reader *r, struct model_config *c)
{
	const struct latent_config *latent = &c->block[0].latent;
	int64_t key = latent->own + latent->shared;
	double stretch = yarn_stretch(r, c);

	for (int64_t l = 0; l < c->L; l++)
		c->block[l].D = key > latent->value ? key : latent->value;
	c->attention_scale = stretch * stretch / sqrt((double)key);
	c->norm_of[ROLE_Q_A_NORM_W].epsilon = c->norm_of[ROLE_KV_A_NORM_W].epsilon = 1e-6;
}

/* Experts from layer first_k_dense_replace on, and as many shared ones as n_shared_experts in one. */
void deepseek_read_experts(struct config_reader *r, struct model_config *c, struct experts_config *e,
        const struct experts_keys *keys, int64_t shared, int64_t dense)
{
	config_read_experts(r, e, keys);
	config_read_int(r, "n_shared_experts", &shared, 1, CONFIG_SIZE_MAX);
	config_read_int(r, "first_k_dense_replace", &dense, 0, INT32_MAX);
	if (!r->err && !e->count)
		config_fail(r, ERR_INPUT, "the number of experts is 0");
	e->shared = shared * e->F;
	for (int64_t l = 0; l < c->L && !r->err; l++)
		config_set_sparse(&c->block[l], e, l >= dense);
}

static void deepseek_v3_read(struct config_reader *r, struct model_config *c)
{
	static const struct experts_keys keys = {.count = {"n_routed_experts", "num_local_experts"},
	        .chosen = "num_experts_per_tok",
	        .inner = "moe_intermediate_size",
	        .normed = "norm_topk_prob",
	        .is_grouped = 1};
	struct experts_config e = {.count = 256,
	        .chosen = 8,
	        .F = 2048,
	        .rule = ROUTE_SIGMOID,
	        .is_normed = 1,
	        .scale = 2.5,
	        .groups = 8,
	        .groups_chosen = 4};
	int interleave = 1;

	config_read_flag(r, "rope_interleave", &interleave);
	c->rope_pairs = interleave ? ROPE_NEIGHBOURS : ROPE_HALVES;
	deepseek_read_attention(r, c);
	deepseek_read_experts(r, c, &e, &keys, 1, 3);
}

const struct model_family family_deepseek_v3 = {
        .model_type = "deepseek_v3",
        .base_class = "DeepseekV3Model",
        .causal_class = "DeepseekV3ForCausalLM",
        .tensors = deepseek_v3_tensors,
        .splits = qwen_expert_splits,
        .defaults = {.V = 129280,
                .C = 7168,
                .F = 18432,
                .L = 61,
                .H = 128,
                .D = 64,
                .max_positions = 4096,
                .norm_epsilon = 1e-6,
                .rope_pairs = ROPE_NEIGHBOURS,
                .eos_ids = {1},
                .eos_count = 1,
                .bos_id = 0,
                .pad_id = -1},
        .sizes = deepseek_sizes,
        .read = deepseek_v3_read,
};
