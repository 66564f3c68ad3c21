/* Gemma 3, text only: Gemma 2 without a cap on scores, with norms of q and k, two rotary thetas. */
#include "model/families/families.h"

static const struct family_tensor gemma3_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_HEAD_NORMS,
        LLAMA_MLP,
        GEMMA_NORMS,
        LLAMA_NORM_HEAD,
};

/* EmbeddingGemma sees both ways; its window is that many tokens on both sides together. */
static void gemma3_read(struct config_reader *r, struct model_config *c)
{
	int sees_both = 0;

	gemma2_read_scales(r, c);
	config_read_flag(r, "use_bidirectional_attention", &sees_both);
	for (int64_t l = 0; l < c->L && sees_both; l++)
		c->block[l].window = c->block[l].window ? c->block[l].window / 2 + 1 : 0;
	c->is_encoder = sees_both;
}

const struct model_family family_gemma3_text = {
        .model_type = "gemma3_text",
        .base_class = "Gemma3TextModel",
        .causal_class = "Gemma3ForCausalLM",
        .tensors = gemma3_tensors,
        .defaults = {GEMMA2_DEFAULTS, .V = 262208, .max_positions = 131072},
        .keys = {.act = "hidden_activation"},
        .window = {.read = 1,
                .needed = 1,
                .otherwise = 4096,
                .full_every = 6,
                .full_every_key = "sliding_window_pattern"},
        .rope = {.theta_otherwise = 1e6,
                .two_sets = 1,
                .local_theta = "rope_local_base_freq",
                .local_theta_otherwise = 1e4},
        .whole_heads = 1,
        .ignored = {{"attn_logit_softcapping", "its attention has no cap"}},
        .read = gemma3_read,
};
