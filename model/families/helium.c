/* Helium: Llama with rotary positions of neighbouring elements. */
#include "model/families/families.h"

static const struct family_tensor helium_tensors[] = {
        LLAMA_EMBED,
        TENSOR(Q_W, "self_attn.q_proj.weight"),
        TENSOR_IF(Q_B, "self_attn.q_proj.bias", "attention_bias", 0),
        TENSOR(K_W, "self_attn.k_proj.weight"),
        TENSOR_IF(K_B, "self_attn.k_proj.bias", "attention_bias", 0),
        TENSOR(V_W, "self_attn.v_proj.weight"),
        TENSOR_IF(V_B, "self_attn.v_proj.bias", "attention_bias", 0),
        TENSOR(O_W, "self_attn.o_proj.weight"),
        LLAMA_MLP_BIASED("mlp_bias", 0),
        LLAMA_NORMS,
        LLAMA_HEAD,
};

const struct model_family family_helium = {
        .model_type = "helium",
        .base_class = "HeliumModel",
        .causal_class = "HeliumForCausalLM",
        .tensors = helium_tensors,
        .defaults = {.V = 48000,
                .C = 2560,
                .F = 7040,
                .L = 24,
                .H = 20,
                .KV = 20,
                .D = 128,
                .max_positions = 4096,
                .norm_epsilon = 1e-8,
                .rope_pairs = ROPE_NEIGHBOURS,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = 3},
        .rope = {.theta_otherwise = 1e5},
};
