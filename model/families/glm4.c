/* GLM-4-0414, GLM-Z1: GLM with norms after attention and MLP too. */
#include "model/families/families.h"

static const struct family_tensor glm4_tensors[] = {
        LLAMA_EMBED,
        GLM_ATTENTION_MLP,
        LLAMA_NORMS,
        TENSOR(POST_NORM1_W, "post_self_attn_layernorm.weight"),
        TENSOR(POST_NORM2_W, "post_mlp_layernorm.weight"),
        LLAMA_NORM_HEAD,
};

const struct model_family family_glm4 = {
        .model_type = "glm4",
        .base_class = "Glm4Model",
        .causal_class = "Glm4ForCausalLM",
        .tensors = glm4_tensors,
        GLM_DEFAULTS,
};
