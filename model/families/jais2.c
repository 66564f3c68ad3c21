/* Jais 2: Llama with LayerNorm, biases, and an MLP without a gate. */
#include "model/families/families.h"

static const struct family_tensor jais2_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 1),
        LLAMA_UP_DOWN_BIASED("mlp_bias", 1),
        LLAMA_LAYER_NORMS,
        LLAMA_LAYER_NORM_HEAD,
};

const struct model_family family_jais2 = {
        .model_type = "jais2",
        .base_class = "Jais2Model",
        .causal_class = "Jais2ForCausalLM",
        .tensors = jais2_tensors,
        .defaults = {.V = 150272,
                .C = 3328,
                .F = 26624,
                .L = 32,
                .H = 26,
                .max_positions = 8192,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .act = ACT_RELU2,
                .eos_ids = {150024},
                .eos_count = 1,
                .bos_id = 0,
                .pad_id = -1},
        .keys = {.epsilon = "layer_norm_eps"},
        .whole_heads = 1,
};
