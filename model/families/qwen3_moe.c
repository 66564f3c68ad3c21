/* Qwen3 with experts, in all layers or in some, and the text part of Qwen3-VL with experts. */
#include "model/families/families.h"

static const struct family_tensor qwen3_moe_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_HEAD_NORMS,
        TENSOR(EXPERTS_GATE_UP_W, "mlp.experts.gate_up_proj"),
        TENSOR(EXPERTS_DOWN_W, "mlp.experts.down_proj"),
        TENSOR(ROUTER_W, "mlp.gate.weight"),
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

static void qwen3_moe_read(struct config_reader *r, struct model_config *c)
{
	struct experts_config e = {.count = 128, .chosen = 8, .F = 768};

	config_read_experts(r, &e, &experts_keys_qwen);
	config_read_balance(r, c, 0.001);
	config_read_sparse_layers(r, c, &e);
}

const struct model_family family_qwen3_moe = {
        .model_type = "qwen3_moe",
        .base_class = "Qwen3MoeModel",
        .causal_class = "Qwen3MoeForCausalLM",
        .tensors = qwen3_moe_tensors,
        .splits = qwen_expert_splits,
        .defaults = {.V = 151936,
                .C = 2048,
                .F = 6144,
                .L = 24,
                .H = 32,
                .KV = 4,
                .max_positions = 32768,
                .norm_epsilon = 1e-6,
                .bos_id = -1,
                .pad_id = -1},
        .window = {.read = 1, .otherwise = 4096, .use = "use_sliding_window", .every_block = 1},
        .read = qwen3_moe_read,
};

/* Its files have the matrices of all experts in one tensor: published ones [in, out] each, those that
 * transformers 5 saves [out, in]. */
static void qwen3_vl_moe_read(struct config_reader *r, struct model_config *c)
{
	struct experts_config e = {
	        .count = 60, .chosen = 4, .F = 1408, .is_normed = 1, .in_out = 1, .is_either = 1};
	static const struct experts_keys keys = {.count = {"num_experts", "num_local_experts"},
	        .chosen = "num_experts_per_tok",
	        .inner = "moe_intermediate_size"};

	config_read_experts(r, &e, &keys);
	config_read_balance(r, c, 0.001);
	config_read_sparse_layers(r, c, &e);
}

const struct model_family family_qwen3_vl_moe_text = {
        .model_type = "qwen3_vl_moe_text",
        .base_class = "Qwen3VLMoeTextModel",
        .causal_class = "Qwen3VLMoeForConditionalGeneration",
        .tensors = qwen3_moe_tensors,
        .defaults = {.V = 151936,
                .C = 2048,
                .F = 5632,
                .L = 24,
                .H = 16,
                .KV = 16,
                .max_positions = 128000,
                .norm_epsilon = 1e-6,
                .tied = 1,
                .bos_id = -1,
                .pad_id = -1},
        .rope = {.theta_otherwise = 500000},
        .only_whole = 1,
        .read = qwen3_vl_moe_read,
};
