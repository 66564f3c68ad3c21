/* HyperCLOVA X: Granite with norms behind attention and MLP; it multiplies the logits. */
#include "model/families/families.h"

static const struct family_tensor hyperclovax_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_MLP_BIASED("mlp_bias", 0),
        LLAMA_NORMS,
        TENSOR_IF(POST_NORM1_W, "post_norm1.weight", "use_post_norm", 1),
        TENSOR_IF(POST_NORM2_W, "post_norm2.weight", "use_post_norm", 1),
        LLAMA_NORM_HEAD,
};

static void hyperclovax_read(struct config_reader *r, struct model_config *c)
{
	double logits;

	config_read_multiplier(r, "embedding_multiplier", &c->embed_scale);
	config_read_multiplier(r, "residual_multiplier", &c->residual_scale);
	config_read_multiplier(r, "logits_scaling", &logits);
	c->logit_divisor = 1 / logits;
	if (config_has(r, "attention_multiplier"))
		config_read_multiplier(r, "attention_multiplier", &c->attention_scale);
}

const struct model_family family_hyperclovax = {
        .model_type = "hyperclovax",
        .base_class = "HyperCLOVAXModel",
        .causal_class = "HyperCLOVAXForCausalLM",
        .tensors = hyperclovax_tensors,
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
        .whole_heads = 1,
        .read = hyperclovax_read,
};
