/* Phi-3, 3.5 and 4: Llama with fused q, k, v and gate, up; partial rotary positions, longrope. */
#include "model/families/families.h"

static const struct family_tensor phi3_tensors[] = {
        LLAMA_EMBED,
        TENSOR(O_W, "self_attn.o_proj.weight"),
        TENSOR(QKV_W, "self_attn.qkv_proj.weight"),
        TENSOR(GATE_UP_W, "mlp.gate_up_proj.weight"),
        TENSOR(DOWN_W, "mlp.down_proj.weight"),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

const struct model_family family_phi3 = {
        .model_type = "phi3",
        .base_class = "Phi3Model",
        .causal_class = "Phi3ForCausalLM",
        .tensors = phi3_tensors,
        .defaults = {.V = 32064,
                .C = 3072,
                .F = 8192,
                .L = 32,
                .H = 32,
                .max_positions = 4096,
                .norm_epsilon = 1e-5,
                .pad_id = 32000,
                .eos_ids = {32000},
                .eos_count = 1,
                .bos_id = 1},
        .window = {.read = 1, .every_block = 1},
        .rope = {.partial_in_default = 1, .only_longrope = 1, .original_otherwise = 4096},
        .ignored = {{"attention_bias", "Phi-3 has none"}, {"mlp_bias", "Phi-3 has none"}},
};
