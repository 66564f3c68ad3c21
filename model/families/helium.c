/* Helium: Llama with rotary pairs of neighbours. */
#include "model/families/families.h"

static const struct family_tensor helium_tensors[] = {
        LLAMA_EMBED,
        LLAMA_QKV_BIASED("attention_bias", 0),
        TENSOR(O_W, "self_attn.o_proj.weight"),
        LLAMA_MLP_BIASED("mlp_bias", 0),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
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
