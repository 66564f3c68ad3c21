/* OLMo 2: norms after attention and MLP instead of before, and over all heads of q or k together. */
#include "model/families/families.h"

const struct family_tensor olmo2_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_HEAD_NORMS,
        LLAMA_MLP,
        LLAMA_POST_NORMS,
        LLAMA_NORM_HEAD,
};

const struct model_family family_olmo2 = {
        .model_type = "olmo2",
        .base_class = "Olmo2Model",
        .causal_class = "Olmo2ForCausalLM",
        .tensors = olmo2_tensors,
        .defaults = {.V = 50304,
                .C = 4096,
                .F = 11008,
                .L = 32,
                .H = 32,
                .max_positions = 2048,
                .norm_epsilon = 1e-5,
                .qk_norm_whole = 1,
                .eos_ids = {50279},
                .eos_count = 1,
                .bos_id = -1,
                .pad_id = 1},
};
