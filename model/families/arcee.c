/* Arcee (AFM): Llama with a squared ReLU and no gate in the MLP. */
#include "model/families/families.h"

static const struct family_tensor arcee_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_UP_DOWN_BIASED("mlp_bias", 0),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

const struct model_family family_arcee = {
        .model_type = "arcee",
        .base_class = "ArceeModel",
        .causal_class = "ArceeForCausalLM",
        .tensors = arcee_tensors,
        .defaults = {.V = 32000,
                .C = 2560,
                .F = 18432,
                .L = 32,
                .H = 32,
                .max_positions = 4096,
                .norm_epsilon = 1e-5,
                .act = ACT_RELU2,
                .eos_ids = {128001},
                .eos_count = 1,
                .bos_id = 128000,
                .pad_id = -1},
};
