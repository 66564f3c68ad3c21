/* Command R: parallel residual on one LayerNorm, rotary pairs of neighbours, scaled logits. */
#include "model/families/families.h"

const struct family_tensor cohere_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_MLP,
        TENSOR(NORM1_W, "input_layernorm.weight"),
        LLAMA_NORM_HEAD,
};

void cohere_read_scale(struct config_reader *r, struct model_config *c)
{
	double scale = 0.0625;

	config_read_num(r, "logit_scale", &scale);
	if (!r->err)
		config_check_positive(r, "logit_scale", scale);
	c->logit_divisor = 1 / scale;
}

static void cohere_read(struct config_reader *r, struct model_config *c)
{
	config_refuse_flag(r, "use_qk_norm");
	cohere_read_scale(r, c);
}

const struct model_family family_cohere = {
        .model_type = "cohere",
        .base_class = "CohereModel",
        .causal_class = "CohereForCausalLM",
        .tensors = cohere_tensors,
        COHERE_DEFAULTS,
        .rope = {.theta_otherwise = 5e5},
        .read = cohere_read,
};
