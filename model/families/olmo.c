/* OLMo 1: Llama with LayerNorms that have neither weight nor bias. */
#include "model/families/families.h"

#include "base/err.h"

/* The norms stand here for their place; norm_plain says that they have no tensors. */
static const struct family_tensor olmo_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

static void olmo_read(struct config_reader *r, struct model_config *c)
{
	config_read_clip(r, c);
}

const struct model_family family_olmo = {
        .model_type = "olmo",
        .base_class = "OlmoModel",
        .causal_class = "OlmoForCausalLM",
        .tensors = olmo_tensors,
        .defaults = {.V = 50304,
                .C = 4096,
                .F = 11008,
                .L = 32,
                .H = 32,
                .max_positions = 2048,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .norm_weight_offset = 1,
                .norm_plain = 1,
                .eos_ids = {50279},
                .eos_count = 1,
                .bos_id = -1,
                .pad_id = 1},
        .keys = {.epsilon = FAMILY_NO_KEY},
        .read = olmo_read,
};
