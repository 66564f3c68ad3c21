/* Command R7B, Command A: Cohere with windows in three of four blocks, no rotation in the others. */
#include "model/families/families.h"

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
        .tensors = cohere_tensors,
        COHERE_DEFAULTS,
        .window = {.read = 1, .otherwise = 4096, .full_every = 4, .full_every_key = "sliding_window_pattern"},
        .read = cohere2_read,
};
