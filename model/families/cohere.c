/* Command R: attention and MLP side by side on one LayerNorm without bias, rotary positions of neighbouring
 * elements, scaled logits. */
#include "model/families/families.h"

static const struct family_tensor cohere_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_MLP,
        TENSOR(NORM1_W, "input_layernorm.weight"),
        LLAMA_HEAD,
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
        .defaults = {.V = 256000,
                .C = 8192,
                .F = 22528,
                .L = 40,
                .H = 64,
                .max_positions = 8192,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .parallel_residual = 1,
                .rope_pairs = ROPE_NEIGHBOURS,
                .tied = 1,
                .eos_ids = {255001},
                .eos_count = 1,
                .bos_id = 5,
                .pad_id = 0},
        .keys = {.epsilon = "layer_norm_eps"},
        .rope = {.theta_otherwise = 5e5},
        .read = cohere_read,
};
