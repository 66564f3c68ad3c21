/* StarCoder2: LayerNorm, biases, an MLP without a gate, and a window. */
#include "model/families/families.h"

static const struct family_tensor starcoder2_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("use_bias", 1),
        TENSOR(UP_W, "mlp.c_fc.weight"),
        TENSOR_IF(UP_B, "mlp.c_fc.bias", "use_bias", 1),
        TENSOR(DOWN_W, "mlp.c_proj.weight"),
        TENSOR_IF(DOWN_B, "mlp.c_proj.bias", "use_bias", 1),
        LLAMA_LAYER_NORMS,
        LLAMA_LAYER_NORM_HEAD,
};

const struct model_family family_starcoder2 = {
        .model_type = "starcoder2",
        .base_class = "Starcoder2Model",
        .causal_class = "Starcoder2ForCausalLM",
        .tensors = starcoder2_tensors,
        .defaults = {.V = 49152,
                .C = 3072,
                .F = 12288,
                .L = 30,
                .H = 24,
                .KV = 2,
                .max_positions = 4096,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .act = ACT_GELU_TANH,
                .initializer_range = 0.018042,
                .tied = 1,
                .eos_ids = {50256},
                .eos_count = 1,
                .bos_id = 50256,
                .pad_id = -1},
        .keys = {.epsilon = "norm_epsilon"},
        .window = {.read = 1, .every_block = 1},
};
