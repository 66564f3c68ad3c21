/* VaultGemma: Gemma 2 without norms behind attention and MLP. */
#include "model/families/families.h"

static const struct family_tensor vaultgemma_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_MLP,
        TENSOR(NORM1_W, "input_layernorm.weight"),
        TENSOR(NORM2_W, "pre_feedforward_layernorm.weight"),
        LLAMA_NORM_HEAD,
};

const struct model_family family_vaultgemma = {
        .model_type = "vaultgemma",
        .base_class = "VaultGemmaModel",
        .causal_class = "VaultGemmaForCausalLM",
        .tensors = vaultgemma_tensors,
        .defaults = {GEMMA2_DEFAULTS, .V = 256000, .max_positions = 8192, .logit_cap = 30},
        .keys = {.act = "hidden_activation"},
        .window = {.read = 1, .needed = 1, .otherwise = 4096, .full_every = 2},
        .whole_heads = 1,
        .read = gemma2_read,
};
