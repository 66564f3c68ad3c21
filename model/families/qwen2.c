/* Qwen2 and 2.5: Llama with biases on q, k and v, and optional windows in the later blocks. */
#include "model/families/families.h"

static const struct family_tensor qwen2_tensors[] = {
        LLAMA_EMBED,
        LLAMA_QKV_BIASED(NULL, 1),
        TENSOR(O_W, "self_attn.o_proj.weight"),
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

const struct model_family family_qwen2 = {
        .model_type = "qwen2",
        .base_class = "Qwen2Model",
        .causal_class = "Qwen2ForCausalLM",
        .tensors = qwen2_tensors,
        .defaults = {QWEN_DEFAULTS},
        QWEN_WINDOW_AND_IGNORED,
};
