/* Qwen3: norms on the heads of q and k, and windows as in Qwen2. */
#include "model/families/families.h"

static const struct family_tensor qwen3_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_HEAD_NORMS,
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_HEAD,
};

const struct model_family family_qwen3 = {
        .model_type = "qwen3",
        .base_class = "Qwen3Model",
        .causal_class = "Qwen3ForCausalLM",
        .tensors = qwen3_tensors,
        .defaults = {.V = 151936,
                .C = 4096,
                .F = 22016,
                .L = 32,
                .H = 32,
                .KV = 32,
                .D = 128,
                .max_positions = 32768,
                .norm_epsilon = 1e-6,
                .bos_id = -1,
                .pad_id = -1},
        .window = {.read = 1, .otherwise = 4096, .use = "use_sliding_window", .from = 28},
        .ignored = {{"mlp_bias", "Qwen has none"}},
};
