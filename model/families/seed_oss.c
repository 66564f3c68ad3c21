/* Seed-OSS: Llama with biases on q, k and v, and heads whose size stands apart. */
#include "model/families/families.h"

static const struct family_tensor seed_oss_tensors[] = {
        LLAMA_EMBED,
        TENSOR(Q_W, "self_attn.q_proj.weight"),
        TENSOR_IF(Q_B, "self_attn.q_proj.bias", "attention_bias", 1),
        TENSOR(K_W, "self_attn.k_proj.weight"),
        TENSOR_IF(K_B, "self_attn.k_proj.bias", "attention_bias", 1),
        TENSOR(V_W, "self_attn.v_proj.weight"),
        TENSOR_IF(V_B, "self_attn.v_proj.bias", "attention_bias", 1),
        TENSOR(O_W, "self_attn.o_proj.weight"),
        TENSOR_IF(O_B, "self_attn.o_proj.bias", "attention_out_bias", 0),
        LLAMA_MLP_BIASED("mlp_bias", 0),
        LLAMA_NORMS,
        LLAMA_HEAD,
};

const struct model_family family_seed_oss = {
        .model_type = "seed_oss",
        .base_class = "SeedOssModel",
        .causal_class = "SeedOssForCausalLM",
        .tensors = seed_oss_tensors,
        .defaults = {.V = 155136,
                .C = 4096,
                .F = 27648,
                .L = 64,
                .H = 80,
                .KV = 8,
                .D = 128,
                .max_positions = 524288,
                .norm_epsilon = 1e-6,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 0,
                .pad_id = 1},
};
