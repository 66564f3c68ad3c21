/* Phi-1, 1.5 and 2: parallel residual on one LayerNorm, biases everywhere, partial rotary positions. */
#include "model/families/families.h"

static const struct family_tensor phi_tensors[] = {
        LLAMA_EMBED,
        LLAMA_QKV_BIASED(NULL, 1),
        TENSOR(O_W, "self_attn.dense.weight"),
        TENSOR(O_B, "self_attn.dense.bias"),
        TENSOR(UP_W, "mlp.fc1.weight"),
        TENSOR(UP_B, "mlp.fc1.bias"),
        TENSOR(DOWN_W, "mlp.fc2.weight"),
        TENSOR(DOWN_B, "mlp.fc2.bias"),
        TENSOR(NORM1_W, "input_layernorm.weight"),
        TENSOR(NORM1_B, "input_layernorm.bias"),
        TENSOR(FINAL_NORM_W, "final_layernorm.weight"),
        TENSOR(FINAL_NORM_B, "final_layernorm.bias"),
        TENSOR(HEAD_W, "lm_head.weight"),
        TENSOR(HEAD_B, "lm_head.bias"),
        TENSORS_END,
};

static void phi_read(struct config_reader *r, struct model_config *c)
{
	(void)c;
	config_refuse_flag(r, "qk_layernorm");
}

const struct model_family family_phi = {
        .model_type = "phi",
        .base_class = "PhiModel",
        .causal_class = "PhiForCausalLM",
        .tensors = phi_tensors,
        .defaults = {.V = 51200,
                .C = 2048,
                .F = 8192,
                .L = 24,
                .H = 32,
                .max_positions = 2048,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .act = ACT_GELU_TANH,
                .parallel_residual = 1,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = -1},
        .keys = {.epsilon = "layer_norm_eps"},
        .rope = {.partial_otherwise = 0.5, .partial_in_default = 1},
        .read = phi_read,
};
