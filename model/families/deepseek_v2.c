/* DeepSeek-V2: latent attention as in V3; its router is a softmax, with groups or without. */
#include "base/err.h"
#include "model/families/families.h"

#include <string.h>

static const struct family_tensor deepseek_v2_tensors[] = {
        LLAMA_EMBED,
        DEEPSEEK_ATTENTION,
        TENSOR(EXPERTS_GATE_UP_W, "mlp.experts.gate_up_proj"),
        TENSOR(EXPERTS_DOWN_W, "mlp.experts.down_proj"),
        TENSOR(ROUTER_W, "mlp.gate.weight"),
        TENSOR(SHARED_GATE_W, "mlp.shared_experts.gate_proj.weight"),
        TENSOR(SHARED_UP_W, "mlp.shared_experts.up_proj.weight"),
        TENSOR(SHARED_DOWN_W, "mlp.shared_experts.down_proj.weight"),
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

/* Whether the choice is among the best groups only. */
static int read_method(struct config_reader *r)
{
	const char *method = "greedy";

	config_read_str(r, "topk_method", &method);
	if (r->err || !strcmp(method, "greedy"))
		return 0;
	if (strcmp(method, "group_limited_greedy") != 0)
		config_fail(r, ERR_UNSUPPORTED,
		        "topk_method is \"%.60s\"; supported: greedy, group_limited_greedy", method);
	return 1;
}

static void deepseek_v2_read(struct config_reader *r, struct model_config *c)
{
	struct experts_keys keys = {.count = {"n_routed_experts", "num_experts"},
	        .chosen = "num_experts_per_tok",
	        .inner = "moe_intermediate_size",
	        .is_grouped = 1};
	struct experts_config e = {.count = 64, .chosen = 1, .F = 1407};

	deepseek_read_attention(r, c);
	if (!r->err && !config_has(r, "num_experts_per_tok"))
		config_fail(r, ERR_INPUT, "num_experts_per_tok is missing");
	config_refuse_flag(r, "mlp_bias");
	keys.is_ungrouped = !read_method(r);
	deepseek_read_experts(r, c, &e, &keys, 2, 0);
}

const struct model_family family_deepseek_v2 = {
        .model_type = "deepseek_v2",
        .base_class = "DeepseekV2Model",
        .causal_class = "DeepseekV2ForCausalLM",
        .tensors = deepseek_v2_tensors,
        .splits = qwen_expert_splits,
        .defaults = {.V = 102400,
                .C = 4096,
                .F = 11008,
                .L = 32,
                .H = 32,
                .D = 64,
                .max_positions = 2048,
                .norm_epsilon = 1e-6,
                .rope_pairs = ROPE_NEIGHBOURS,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = -1},
        .ignored = {{"norm_topk_prob", "transformers' DeepSeek-V2 does not divide the weights"}},
        .sizes = deepseek_sizes,
        .read = deepseek_v2_read,
};
