/* Nemotron 3 and 4, Minitron: LayerNorm by 1 + weight, squared ReLU, no gate, half of each head rotated. */
#include "model/families/families.h"

static const struct family_tensor nemotron_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_UP_DOWN_BIASED("mlp_bias", 0),
        LLAMA_LAYER_NORMS,
        LLAMA_LAYER_NORM_HEAD,
};

const struct model_family family_nemotron = {
        .model_type = "nemotron",
        .base_class = "NemotronModel",
        .causal_class = "NemotronForCausalLM",
        .tensors = nemotron_tensors,
        .defaults = {.V = 256000,
                .C = 6144,
                .F = 24576,
                .L = 32,
                .H = 48,
                .max_positions = 4096,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .norm_weight_offset = 1,
                .act = ACT_RELU2,
                .initializer_range = 0.0134,
                .eos_ids = {3},
                .eos_count = 1,
                .bos_id = 2,
                .pad_id = -1},
        .keys = {.epsilon = "norm_eps"},
        .rope = {.partial_otherwise = 0.5, .partial_in_default = 1},
};
