/* Gemma 2: Gemma with norms before and after, windows in every other block, soft caps. */
#include "model/families/families.h"

#include <math.h>

static const struct family_tensor gemma2_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_MLP,
        GEMMA_NORMS,
        LLAMA_NORM_HEAD,
};

void gemma2_read_cap(struct config_reader *r, const char *key, double *cap)
{
	if (config_is_null(r, key)) {
		*cap = 0;
		return;
	}
	config_read_num(r, key, cap);
	if (!r->err && config_has(r, key))
		config_check_positive(r, key, *cap);
}

void gemma2_read_scales(struct config_reader *r, struct model_config *c)
{
	double scalar = 256;

	c->embed_scale = sqrt((double)c->C);
	c->embed_scale_rounds = 1;
	config_read_num(r, "query_pre_attn_scalar", &scalar);
	if (!r->err)
		config_check_positive(r, "query_pre_attn_scalar", scalar);
	c->attention_scale = 1 / sqrt(scalar);
	gemma2_read_cap(r, "final_logit_softcapping", &c->logit_cap);
}

void gemma2_read(struct config_reader *r, struct model_config *c)
{
	double score_cap = 50;

	config_refuse_flag(r, "use_bidirectional_attention");
	gemma2_read_scales(r, c);
	gemma2_read_cap(r, "attn_logit_softcapping", &score_cap);
	for (int64_t l = 0; l < c->L && !r->err; l++)
		c->block[l].score_cap = score_cap;
}

const struct model_family family_gemma2 = {
        .model_type = "gemma2",
        .base_class = "Gemma2Model",
        .causal_class = "Gemma2ForCausalLM",
        .tensors = gemma2_tensors,
        .defaults = {GEMMA2_DEFAULTS, .V = 256000, .max_positions = 8192, .logit_cap = 30},
        .keys = {.act = "hidden_activation"},
        .window = {.read = 1, .otherwise = 4096, .full_every = 2},
        .whole_heads = 1,
        .read = gemma2_read,
};
