/* GLM-4.5: DeepSeek-V3's router, with attention as in Llama. Its first layers have an MLP. */
#include "model/families/families.h"

static const struct family_tensor glm4_moe_tensors[] = {
        LLAMA_EMBED,
        LLAMA_QKV_BIASED("attention_bias", 0),
        TENSOR(O_W, "self_attn.o_proj.weight"),
        TENSOR_IF(Q_NORM_W, "self_attn.q_norm.weight", "use_qk_norm", 0),
        TENSOR_IF(K_NORM_W, "self_attn.k_norm.weight", "use_qk_norm", 0),
        DEEPSEEK_EXPERTS,
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

static void glm4_moe_read(struct config_reader *r, struct model_config *c)
{
	static const struct experts_keys keys = {.count = {"n_routed_experts", "num_local_experts"},
	        .chosen = "num_experts_per_tok",
	        .inner = "moe_intermediate_size",
	        .normed = "norm_topk_prob",
	        .is_grouped = 1};
	struct experts_config e = {
	        .count = 128, .chosen = 8, .F = 1408, .rule = ROUTE_SIGMOID, .is_normed = 1};
	int64_t shared = 1, dense = 1;

	config_read_experts(r, &e, &keys);
	config_read_int(r, "n_shared_experts", &shared, 1, CONFIG_SIZE_MAX);
	config_read_int(r, "first_k_dense_replace", &dense, 0, INT32_MAX);
	e.shared = shared * e.F;
	for (int64_t l = 0; l < c->L && !r->err; l++)
		config_set_sparse(&c->block[l], &e, l >= dense);
}

const struct model_family family_glm4_moe = {
        .model_type = "glm4_moe",
        .base_class = "Glm4MoeModel",
        .causal_class = "Glm4MoeForCausalLM",
        .tensors = glm4_moe_tensors,
        .splits = qwen_expert_splits,
        .defaults = {.V = 151552,
                .C = 4096,
                .F = 10944,
                .L = 46,
                .H = 96,
                .KV = 8,
                .max_positions = 131072,
                .norm_epsilon = 1e-5,
                .bos_id = -1,
                .pad_id = -1},
        .rope = {.partial_otherwise = 0.5, .partial_in_default = 1},
        .read = glm4_moe_read,
};
