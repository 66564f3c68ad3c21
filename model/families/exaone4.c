/* EXAONE 4: norms after attention and MLP, windows in three of four blocks, no rotation in the others. */
#include "model/families/families.h"

static const struct family_tensor exaone4_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION,
        LLAMA_HEAD_NORMS,
        LLAMA_MLP,
        LLAMA_POST_NORMS,
        LLAMA_NORM_HEAD,
};

static void exaone4_read(struct config_reader *r, struct model_config *c)
{
	for (int64_t l = 0; l < c->L; l++)
		if (!config_is_null(r, "sliding_window") && !c->block[l].window)
			c->block[l].rope = -1;
}

const struct model_family family_exaone4 = {
        .model_type = "exaone4",
        .base_class = "Exaone4Model",
        .causal_class = "Exaone4ForCausalLM",
        .tensors = exaone4_tensors,
        .defaults = {.V = 102400,
                .C = 4096,
                .F = 16384,
                .L = 32,
                .H = 32,
                .KV = 32,
                .max_positions = 2048,
                .norm_epsilon = 1e-5,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 0,
                .pad_id = -1},
        .window = {.read = 1, .otherwise = 4096, .full_every = 4, .full_every_key = "sliding_window_pattern"},
        .read = exaone4_read,
};
