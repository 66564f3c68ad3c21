/* Ministral: Mistral with windows in the blocks that layer_types names. */
#include "model/families/families.h"

const struct model_family family_ministral = {
        .model_type = "ministral",
        .base_class = "MinistralModel",
        .causal_class = "MinistralForCausalLM",
        .tensors = mistral_tensors,
        .defaults = {MISTRAL_DEFAULTS},
        .window = {.read = 1, .otherwise = 4096},
        .ignored = {{"attention_bias", "Ministral has none"}, {"mlp_bias", "Ministral has none"}},
};
