/* Llama 1 to 3. */
#include "model/families/families.h"

static const struct family_tensor llama_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_MLP_BIASED("mlp_bias", 0),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

const struct model_family family_llama = {
        .model_type = "llama",
        .base_class = "LlamaModel",
        .causal_class = "LlamaForCausalLM",
        .tensors = llama_tensors,
        .defaults = {.V = 32000,
                .C = 4096,
                .F = 11008,
                .L = 32,
                .H = 32,
                .max_positions = 2048,
                .norm_epsilon = 1e-6,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = -1},
        .whole_heads = 1,
        .ignored = {{"sliding_window", "Llama attends to the whole row"}},
};
