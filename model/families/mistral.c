/* Mistral: Llama with a window, and without biases. */
#include "model/families/families.h"

const struct family_tensor mistral_tensors[] = {
        LLAMA_EMBED, LLAMA_ATTENTION, LLAMA_MLP, LLAMA_NORMS, LLAMA_NORM_HEAD};

const struct model_family family_mistral = {
        .model_type = "mistral",
        .base_class = "MistralModel",
        .causal_class = "MistralForCausalLM",
        .tensors = mistral_tensors,
        .defaults = {MISTRAL_DEFAULTS},
        .window = {.read = 1, .otherwise = 4096},
        .ignored = {{"attention_bias", "Mistral has none"}, {"mlp_bias", "Mistral has none"}},
};
