/* Ministral: Mistral with windows in the blocks that layer_types names. */
#include "model/families/families.h"

const struct model_family family_ministral = {
        .model_type = "ministral",
        .base_class = "MinistralModel",
        .causal_class = "MinistralForCausalLM",
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
        .ignored = {{"attention_bias", "Ministral has none"}, {"mlp_bias", "Ministral has none"}},
};
