/* Command R7B, Command A: Cohere with windows in three of four blocks; the others see everything, and nothing
 * is turned there. */
#include "model/families/families.h"

static const struct family_tensor cohere2_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_MLP,
        TENSOR(NORM1_W, "input_layernorm.weight"),
        LLAMA_HEAD,
};

static void cohere2_read(struct config_reader *r, struct model_config *c)
{
	cohere_read_scale(r, c);
	for (int64_t l = 0; l < c->L && !r->err; l++)
		if (!c->block[l].window)
			c->block[l].rope = -1;
}

const struct model_family family_cohere2 = {
        .model_type = "cohere2",
        .base_class = "Cohere2Model",
        .causal_class = "Cohere2ForCausalLM",
        .tensors = cohere2_tensors,
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
        .window = {.read = 1, .otherwise = 4096, .full_every = 4, .full_every_key = "sliding_window_pattern"},
        .read = cohere2_read,
};
