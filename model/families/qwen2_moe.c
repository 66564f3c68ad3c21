/* Qwen1.5 and Qwen2 with experts, one of them shared by all tokens behind a gate of its own. */
#include "model/families/families.h"

const struct experts_keys experts_keys_qwen = {.count = {"num_experts", "num_local_experts"},
        .chosen = "num_experts_per_tok",
        .inner = "moe_intermediate_size",
        .normed = "norm_topk_prob"};

const struct family_split qwen_expert_splits[] = {
        {"mlp.experts.gate_up_proj", "mlp.experts.%d.gate_proj.weight", 0, 2},
        {"mlp.experts.gate_up_proj", "mlp.experts.%d.up_proj.weight", 1, 2},
        {"mlp.experts.down_proj", "mlp.experts.%d.down_proj.weight", 0, 1},
        {0},
};

static const struct family_tensor qwen2_moe_tensors[] = {
        LLAMA_EMBED,
        LLAMA_QKV_BIASED("qkv_bias", 1),
        TENSOR(O_W, "self_attn.o_proj.weight"),
        QWEN_EXPERTS,
        QWEN_SHARED_EXPERT,
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

/* Without layer_types every second layer has a window, up to max_window_layers. */
static void read_windows(struct config_reader *r, struct model_config *c)
{
	static const struct family_window every_second = {.full_every = 2};
	int64_t window = 4096, most = 28;
	int is_used = 0, is_listed = config_has(r, "layer_types");

	config_read_flag(r, "use_sliding_window", &is_used);
	config_read_int(r, "max_window_layers", &most, INT32_MIN, INT32_MAX);
	config_read_int(r, "sliding_window", &window, is_used ? 1 : INT32_MIN, INT32_MAX);
	if (!is_used || config_is_null(r, "sliding_window"))
		window = 0;
	config_read_layer_windows(r, c, &every_second, window, 0);
	for (int64_t l = most < 0 ? 0 : most; l < c->L && !is_listed && !r->err; l++)
		c->block[l].window = 0;
}

static void qwen2_moe_read(struct config_reader *r, struct model_config *c)
{
	struct experts_config e = {.count = 60, .chosen = 4, .F = 1408, .shared = 5632};

	read_windows(r, c);
	config_read_size(r, "shared_expert_intermediate_size", &e.shared);
	config_read_experts(r, &e, &experts_keys_qwen);
	config_read_balance(r, c, 0.001);
	config_read_sparse_layers(r, c, &e);
}

const struct model_family family_qwen2_moe = {
        .model_type = "qwen2_moe",
        .peft_drops_experts = 1,
        .base_class = "Qwen2MoeModel",
        .causal_class = "Qwen2MoeForCausalLM",
        .tensors = qwen2_moe_tensors,
        .splits = qwen_expert_splits,
        .defaults = {.V = 151936,
                .C = 2048,
                .F = 5632,
                .L = 24,
                .H = 16,
                .KV = 16,
                .max_positions = 32768,
                .norm_epsilon = 1e-6,
                .bos_id = -1,
                .pad_id = -1},
        .read = qwen2_moe_read,
};
