/* ERNIE 4.5, dense: Llama with rotary pairs of neighbours. */
#include "model/families/families.h"

static const struct family_tensor ernie4_5_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("use_bias", 0),
        LLAMA_MLP_BIASED("use_bias", 0),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

const struct model_family family_ernie4_5 = {
        .model_type = "ernie4_5",
        .base_class = "Ernie4_5Model",
        .causal_class = "Ernie4_5ForCausalLM",
        .tensors = ernie4_5_tensors,
        .defaults = {.V = 103424,
                .C = 1024,
                .F = 3072,
                .L = 18,
                .H = 16,
                .KV = 2,
                .D = 128,
                .max_positions = 131072,
                .norm_epsilon = 1e-5,
                .rope_pairs = ROPE_NEIGHBOURS,
                .tied = 1,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = 0},
        .rope = {.theta_otherwise = 5e5},
};
