/* Gemma: Llama with norms that scale by 1 + weight, and a scaled embedding. */
#include "model/families/families.h"

#include <math.h>

static const struct family_tensor gemma_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

/* The first files say gelu and mean its tanh form. */
static void gemma_read(struct config_reader *r, struct model_config *c)
{
	config_refuse_flag(r, "use_bidirectional_attention");
	c->embed_scale = sqrt((double)c->C);
	c->embed_scale_rounds = 1;
	if (c->act == ACT_GELU)
		c->act = ACT_GELU_TANH;
}

const struct model_family family_gemma = {
        .model_type = "gemma",
        .base_class = "GemmaModel",
        .causal_class = "GemmaForCausalLM",
        .tensors = gemma_tensors,
        .defaults = {GEMMA_DEFAULTS, .V = 256000, .C = 3072, .F = 24576, .L = 28, .H = 16, .KV = 16,
                .max_positions = 8192},
        .read = gemma_read,
};
