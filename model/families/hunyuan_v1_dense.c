/* Hunyuan, dense: Llama with norms of q and k behind rotation. */
#include "model/families/families.h"

static const struct family_tensor hunyuan_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        TENSOR(Q_NORM_W, "self_attn.query_layernorm.weight"),
        TENSOR(K_NORM_W, "self_attn.key_layernorm.weight"),
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

const struct model_family family_hunyuan_v1_dense = {
        .model_type = "hunyuan_v1_dense",
        .base_class = "HunYuanDenseV1Model",
        .causal_class = "HunYuanDenseV1ForCausalLM",
        .tensors = hunyuan_tensors,
        .defaults = {.V = 290943,
                .C = 4096,
                .F = 11008,
                .L = 32,
                .H = 32,
                .max_positions = 2048,
                .norm_epsilon = 1e-5,
                .qk_norm_after_rope = 1,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = 0},
        .rope = {.fixed_alpha = 1},
        .ignored = {{"mlp_bias", "Hunyuan has none"}},
};
