/* Seed-OSS: Llama with biases on q, k and v, and a head size apart from C / H. */
#include "model/families/families.h"

static const struct family_tensor seed_oss_tensors[] = {
        LLAMA_EMBED,
        LLAMA_QKV_BIASED("attention_bias", 1),
        TENSOR(O_W, "self_attn.o_proj.weight"),
        TENSOR_IF(O_B, "self_attn.o_proj.bias", "attention_out_bias", 0),
        LLAMA_MLP_BIASED("mlp_bias", 0),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
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
