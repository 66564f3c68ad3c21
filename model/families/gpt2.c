/* GPT-2: learned positions, LayerNorm, matrices stored [in, out], fused q, k and v. */
#include "model/families/families.h"

#include <math.h>

const struct family_tensor gpt2_tensors[] = {
        GPT2_EMBED,
        GPT2_NORM1,
        TENSOR(QKV_W, "attn.c_attn.weight"),
        TENSOR(QKV_B, "attn.c_attn.bias"),
        TENSOR(O_W, "attn.c_proj.weight"),
        TENSOR(O_B, "attn.c_proj.bias"),
        GPT2_NORM2_MLP,
        GPT2_NORM_HEAD,
        TENSORS_END,
};

const char *const gpt2_buffers[] = {"attn.bias", "attn.masked_bias", NULL};

void gpt2_read_scale(struct config_reader *r, struct model_config *c)
{
	int is_scaled = 1;

	c->residual_initializer_range = c->initializer_range / sqrt(2 * (double)c->L);
	config_read_flag(r, "scale_attn_weights", &is_scaled);
	c->attention_scale = is_scaled ? 0 : 1;
}

static void gpt2_read(struct config_reader *r, struct model_config *c)
{
	gpt2_read_scale(r, c);
	config_read_flag(r, "scale_attn_by_inverse_layer_idx", &c->attention_scale_by_layer);
}

const struct model_family family_gpt2 = {
        .model_type = "gpt2",
        .prefix = "transformer.",
        .blocks = "h",
        .base_class = "GPT2Model",
        .causal_class = "GPT2LMHeadModel",
        .tensors = gpt2_tensors,
        .buffers = gpt2_buffers,
        .defaults = {GPT2_DEFAULTS, .weight_in_out = 1},
        .keys = {GPT2_KEYS},
        .whole_heads = 1,
        .one_size_of_heads = 1,
        .pads_nothing = 1,
        .read = gpt2_read,
};
