/* GLM-4-0414, GLM-Z1: GLM with norms behind attention and MLP too. */
#include "model/families/families.h"

static const struct family_tensor glm4_tensors[] = {
        LLAMA_EMBED,
        TENSOR(Q_W, "self_attn.q_proj.weight"),
        TENSOR_IF(Q_B, "self_attn.q_proj.bias", "attention_bias", 1),
        TENSOR(K_W, "self_attn.k_proj.weight"),
        TENSOR_IF(K_B, "self_attn.k_proj.bias", "attention_bias", 1),
        TENSOR(V_W, "self_attn.v_proj.weight"),
        TENSOR_IF(V_B, "self_attn.v_proj.bias", "attention_bias", 1),
        TENSOR(O_W, "self_attn.o_proj.weight"),
        TENSOR(GATE_UP_W, "mlp.gate_up_proj.weight"),
        TENSOR(DOWN_W, "mlp.down_proj.weight"),
        LLAMA_NORMS,
        TENSOR(POST_NORM1_W, "post_self_attn_layernorm.weight"),
        TENSOR(POST_NORM2_W, "post_mlp_layernorm.weight"),
        LLAMA_HEAD,
};

const struct model_family family_glm4 = {
        .model_type = "glm4",
        .base_class = "Glm4Model",
        .causal_class = "Glm4ForCausalLM",
        .tensors = glm4_tensors,
        .defaults = {.V = 151552,
                .C = 4096,
                .F = 13696,
                .L = 40,
                .H = 32,
                .KV = 2,
                .D = 128,
                .max_positions = 131072,
                .norm_epsilon = 1.5625e-7,
                .rope_pairs = ROPE_NEIGHBOURS,
                .eos_ids = {151329, 151336, 151338},
                .eos_count = 3,
                .bos_id = -1,
                .pad_id = 151329},
        .rope = {.partial_otherwise = 0.5, .partial_in_default = 1},
};
