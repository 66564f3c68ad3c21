/* Qwen2 and 2.5: Llama with biases on q, k and v, and windows in the later blocks where they are switched on.
 */
#include "model/families/families.h"

static const struct family_tensor qwen2_tensors[] = {
        LLAMA_EMBED,
        TENSOR(Q_W, "self_attn.q_proj.weight"),
        TENSOR(Q_B, "self_attn.q_proj.bias"),
        TENSOR(K_W, "self_attn.k_proj.weight"),
        TENSOR(K_B, "self_attn.k_proj.bias"),
        TENSOR(V_W, "self_attn.v_proj.weight"),
        TENSOR(V_B, "self_attn.v_proj.bias"),
        TENSOR(O_W, "self_attn.o_proj.weight"),
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_HEAD,
};

const struct model_family family_qwen2 = {
        .model_type = "qwen2",
        .base_class = "Qwen2Model",
        .causal_class = "Qwen2ForCausalLM",
        .tensors = qwen2_tensors,
        .defaults = {.V = 151936,
                .C = 4096,
                .F = 22016,
                .L = 32,
                .H = 32,
                .KV = 32,
                .max_positions = 32768,
                .norm_epsilon = 1e-6,
                .bos_id = -1,
                .pad_id = -1},
        .window = {.read = 1, .otherwise = 4096, .use = "use_sliding_window", .from = 28},
        .ignored = {{"mlp_bias", "Qwen has none"}},
};
