/* Granite: Llama with multipliers of embedding, scores, residual sums and logits. */
#include "model/families/families.h"

static const struct family_tensor granite_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_MLP_BIASED("mlp_bias", 0),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

static void granite_read(struct config_reader *r, struct model_config *c)
{
	config_read_multiplier(r, "embedding_multiplier", &c->embed_scale);
	config_read_multiplier(r, "attention_multiplier", &c->attention_scale);
	config_read_multiplier(r, "residual_multiplier", &c->residual_scale);
	config_read_multiplier(r, "logits_scaling", &c->logit_divisor);
}

const struct model_family family_granite = {
        .model_type = "granite",
        .base_class = "GraniteModel",
        .causal_class = "GraniteForCausalLM",
        .tensors = granite_tensors,
        .defaults = {.V = 32000,
                .C = 4096,
                .F = 11008,
                .L = 32,
                .H = 32,
                .max_positions = 2048,
                .norm_epsilon = 1e-6,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = -1},
        .read = granite_read,
};
