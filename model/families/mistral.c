/* Mistral: Llama with a window, and without biases. */
#include "model/families/families.h"

const struct family_tensor mistral_tensors[] = {
        LLAMA_EMBED, LLAMA_ATTENTION, LLAMA_MLP, LLAMA_NORMS, LLAMA_NORM_HEAD};

const struct model_family family_mistral = {
        .model_type = "mistral",
        .base_class = "MistralModel",
        .causal_class = "MistralForCausalLM",
        .tensors = mistral_tensors,
        .defaults = {.V = 32000,
                .C = 4096,
                .F = 14336,
                .L = 32,
                .H = 32,
                .KV = 8,
                .max_positions = 131072,
                .norm_epsilon = 1e-6,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = -1},
        .window = {.read = 1, .otherwise = 4096},
        .ignored = {{"attention_bias", "Mistral has none"}, {"mlp_bias", "Mistral has none"}},
};
