/* Code World Model: Llama with windows in three of four blocks; the first of four sees everything. */
#include "model/families/families.h"

static const struct family_tensor cwm_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION,
        LLAMA_MLP_BIASED("mlp_bias", 0),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

const struct model_family family_cwm = {
        .model_type = "cwm",
        .base_class = "CwmModel",
        .causal_class = "CwmForCausalLM",
        .tensors = cwm_tensors,
        .defaults = {.V = 128256,
                .C = 6144,
                .F = 21504,
                .L = 64,
                .H = 48,
                .KV = 8,
                .D = 128,
                .max_positions = 131072,
                .norm_epsilon = 1e-5,
                .eos_ids = {128001, 128008, 128009},
                .eos_count = 3,
                .bos_id = 128000,
                .pad_id = -1},
        .window = {.read = 1, .needed = 1, .otherwise = 8192, .full_every = 4, .full_first = 1},
        .rope = {.theta_otherwise = 1e6,
                .otherwise = {.kind = ROPE_LLAMA3,
                        .theta = 1e6,
                        .factor = 16,
                        .low_freq_factor = 1,
                        .high_freq_factor = 4,
                        .attention_factor = 1,
                        .original_max_position_embeddings = 8192}},
        .whole_heads = 1,
        .null_is_default_eos = 1,
        .ignored = {{"attention_bias", "CWM has none"}},
};
