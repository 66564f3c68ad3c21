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
        .defaults = {OLMO2_DEFAULTS},
};
