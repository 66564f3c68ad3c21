/* Qwen3: norms on the heads of q and k, and windows as in Qwen2. */
#include "model/families/families.h"

static const struct family_tensor qwen3_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_HEAD_NORMS,
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

const struct model_family family_qwen3 = {
        .model_type = "qwen3",
        .base_class = "Qwen3Model",
        .causal_class = "Qwen3ForCausalLM",
        .tensors = qwen3_tensors,
        .defaults = {QWEN_DEFAULTS, .D = 128},
        QWEN_WINDOW_AND_IGNORED,
};
