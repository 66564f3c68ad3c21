/* gpt-oss: a sink in the scores of each head, experts with biases in all layers, windows in every second. */
#include "base/err.h"
#include "model/families/families.h"

static const struct family_tensor gpt_oss_tensors[] = {
        LLAMA_EMBED,
        TENSOR(SINKS, "self_attn.sinks"),
        LLAMA_ATTENTION_BIASED("attention_bias", 1),
        TENSOR(ROUTER_W, "mlp.router.weight"),
        TENSOR(ROUTER_B, "mlp.router.bias"),
        TENSOR(EXPERTS_GATE_UP_W, "mlp.experts.gate_up_proj"),
        TENSOR(EXPERTS_GATE_UP_B, "mlp.experts.gate_up_proj_bias"),
        TENSOR(EXPERTS_DOWN_W, "mlp.experts.down_proj"),
        TENSOR(EXPERTS_DOWN_B, "mlp.experts.down_proj_bias"),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

static void gpt_oss_read(struct config_reader *r, struct model_config *c)
{
	static const struct experts_keys keys = {.count = {"num_local_experts", "num_experts"},
	        .chosen = "num_experts_per_tok",
	        .inner = "intermediate_size"};
	struct experts_config e = {.count = 128,
	        .chosen = 4,
	        .F = c->F,
	        .rule = ROUTE_CHOSEN,
	        .in_out = 1,
	        .alpha = 1.702,
	        .limit = 7};

	config_read_num(r, "swiglu_alpha", &e.alpha);
	config_read_num(r, "swiglu_limit", &e.limit);
	if (!r->err)
		config_check_positive(r, "swiglu_alpha", e.alpha);
	if (!r->err)
		config_check_positive(r, "swiglu_limit", e.limit);
	config_read_experts(r, &e, &keys);
	config_read_balance(r, c, 0.001);
	config_set_all_sparse(r, c, &e);
}

const struct model_family family_gpt_oss = {
        .model_type = "gpt_oss",
        .base_class = "GptOssModel",
        .causal_class = "GptOssForCausalLM",
        .tensors = gpt_oss_tensors,
        .defaults = {.V = 201088,
                .C = 2880,
                .F = 2880,
                .L = 36,
                .H = 64,
                .KV = 8,
                .D = 64,
                .max_positions = 131072,
                .norm_epsilon = 1e-5,
                .bos_id = -1,
                .pad_id = -1},
        .window = {.read = 1, .otherwise = 128, .full_every = 2},
        .rope = {.theta_otherwise = 150000,
                .otherwise = {.kind = ROPE_YARN,
                        .factor = 32,
                        .beta_fast = 32,
                        .beta_slow = 1,
                        .attention_factor = 1.3465735902799727, /* 0.1 log(32) + 1 */
                        .original_max_position_embeddings = 4096}},
        .read = gpt_oss_read,
};
