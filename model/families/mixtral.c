/* Mixtral: Mistral with experts in all layers. */
#include "base/err.h"
#include "model/families/families.h"

static const struct family_tensor mixtral_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION,
        TENSOR(ROUTER_W, "block_sparse_moe.gate.weight"),
        TENSOR(EXPERTS_GATE_UP_W, "block_sparse_moe.experts.gate_up_proj"),
        TENSOR(EXPERTS_DOWN_W, "block_sparse_moe.experts.down_proj"),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

static const struct family_split mixtral_splits[] = {
        {"block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.%d.w1.weight", 0, 2},
        {"block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.%d.w3.weight", 1, 2},
        {"block_sparse_moe.experts.down_proj", "block_sparse_moe.experts.%d.w2.weight", 0, 1},
        {0},
};

static void mixtral_read(struct config_reader *r, struct model_config *c)
{
	static const struct experts_keys keys = {.count = {"num_local_experts", "num_experts"},
	        .chosen = "num_experts_per_tok",
	        .inner = "intermediate_size"};
	struct experts_config e = {.count = 8, .chosen = 2, .F = c->F, .is_normed = 1};
	double jitter = 0;

	config_read_num(r, "router_jitter_noise", &jitter);
	if (jitter != 0)
		config_fail(r, ERR_UNSUPPORTED,
		        "router_jitter_noise is %g: noise is not supported; set it to 0", jitter);
	config_read_experts(r, &e, &keys);
	config_read_balance(r, c, 0.001);
	config_set_all_sparse(r, c, &e);
}

static const struct family_rename mixtral_renames[] = {{".block_sparse_moe.", ".mlp."}, {0}};

const struct model_family family_mixtral = {
        .model_type = "mixtral",
        .base_class = "MixtralModel",
        .causal_class = "MixtralForCausalLM",
        .tensors = mixtral_tensors,
        .splits = mixtral_splits,
        .renames = mixtral_renames,
        .defaults = {.V = 32000,
                .C = 4096,
                .F = 14336,
                .L = 32,
                .H = 32,
                .KV = 8,
                .max_positions = 131072,
                .norm_epsilon = 1e-5,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = -1},
        .window = {.read = 1, .every_block = 1},
        .rope = {.theta_otherwise = 1e6},
        .read = mixtral_read,
};
