/* GLM-4-9B: half of each head rotated in pairs of neighbours, gate and up in one matrix. */
#include "model/families/families.h"

static const struct family_tensor glm_tensors[] = {
        LLAMA_EMBED,
        GLM_ATTENTION_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

const struct model_family family_glm = {
        .model_type = "glm",
        .base_class = "GlmModel",
        .causal_class = "GlmForCausalLM",
        .tensors = glm_tensors,
        GLM_DEFAULTS,
};
