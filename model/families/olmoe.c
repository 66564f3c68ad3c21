/* OLMoE: norms over all heads of q or k together, and experts in all layers. */
#include "base/err.h"
#include "model/families/families.h"

static const struct family_tensor olmoe_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_HEAD_NORMS,
        QWEN_EXPERTS,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

static void olmoe_read(struct config_reader *r, struct model_config *c)
{
	static const struct experts_keys keys = {.count = {"num_experts", "num_local_experts"},
	        .chosen = "num_experts_per_tok",
	        .inner = "intermediate_size",
	        .normed = "norm_topk_prob"};
	struct experts_config e = {.count = 64, .chosen = 8, .F = c->F};

	config_read_clip(r, c);
	config_read_experts(r, &e, &keys);
	config_read_balance(r, c, 0.01);
	config_set_all_sparse(r, c, &e);
}

const struct model_family family_olmoe = {
        .model_type = "olmoe",
        .base_class = "OlmoeModel",
        .causal_class = "OlmoeForCausalLM",
        .tensors = olmoe_tensors,
        .splits = qwen_expert_splits,
        .defaults = {.V = 50304,
                .C = 2048,
                .F = 2048,
                .L = 16,
                .H = 16,
                .max_positions = 4096,
                .norm_epsilon = 1e-5,
                .qk_norm_whole = 1,
                .eos_ids = {50279},
                .eos_count = 1,
                .bos_id = -1,
                .pad_id = 1},
        .read = olmoe_read,
};
