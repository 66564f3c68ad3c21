#include "base/err.h"
#include "model/parts.h"

#include <inttypes.h>
#include <math.h>

static const struct family_tensor gpt2_tensors[] = {
        {ROLE_EMBED, "wte.weight"},
        {ROLE_POSITION, "wpe.weight"},
        {ROLE_NORM1_W, "ln_1.weight"},
        {ROLE_NORM1_B, "ln_1.bias"},
        {ROLE_QKV_W, "attn.c_attn.weight"},
        {ROLE_QKV_B, "attn.c_attn.bias"},
        {ROLE_O_W, "attn.c_proj.weight"},
        {ROLE_O_B, "attn.c_proj.bias"},
        {ROLE_NORM2_W, "ln_2.weight"},
        {ROLE_NORM2_B, "ln_2.bias"},
        {ROLE_UP_W, "mlp.c_fc.weight"},
        {ROLE_UP_B, "mlp.c_fc.bias"},
        {ROLE_DOWN_W, "mlp.c_proj.weight"},
        {ROLE_DOWN_B, "mlp.c_proj.bias"},
        {ROLE_FINAL_NORM_W, "ln_f.weight"},
        {ROLE_FINAL_NORM_B, "ln_f.bias"},
        {ROLE_HEAD_W, "lm_head.weight"},
        {ROLE_COUNT, NULL},
};

static const char *const gpt2_buffers[] = {"attn.bias", "attn.masked_bias", NULL};

/* GPT-2's own key, or the general one, which wins where both are there. */
static void read_either(
        struct config_reader *r, const char *own, const char *general, int64_t *out, int64_t most)
{
	config_read_int(r, own, out, 1, most);
	config_read_int(r, general, out, 1, most);
}

static int gpt2_read(struct config_reader *r, struct model_config *c)
{
	int scaled = 1;

	*c = (struct model_config){
	        .model_type = c->model_type,
	        .V = 50257,
	        .C = 768,
	        .L = 12,
	        .H = 12,
	        .max_positions = 1024,
	        .norm = NORM_LAYER,
	        .norm_epsilon = 1e-5,
	        .act = ACT_GELU_TANH,
	        .learned_positions = 1,
	        .weight_in_out = 1,
	        .norm_bias = 1,
	        .q_bias = 1,
	        .k_bias = 1,
	        .v_bias = 1,
	        .o_bias = 1,
	        .mlp_bias = 1,
	        .qkv = QKV_FUSED,
	        .tied = 1,
	        .pad_id = -1,
	        .initializer_range = 0.02,
	        .eos_ids = {50256},
	        .eos_count = 1,
	        .bos_id = 50256,
	};
	config_read_int(r, "vocab_size", &c->V, 1, INT32_MAX);
	read_either(r, "n_embd", "hidden_size", &c->C, CONFIG_SIZE_MAX);
	read_either(r, "n_layer", "num_hidden_layers", &c->L, CONFIG_LAYERS_MAX);
	read_either(r, "n_head", "num_attention_heads", &c->H, CONFIG_SIZE_MAX);
	read_either(r, "n_positions", "max_position_embeddings", &c->max_positions, INT32_MAX);
	c->F = 4 * c->C;
	config_read_size(r, "n_inner", &c->F);
	if (!r->err && c->C % c->H)
		config_fail(r, ERR_INPUT, "n_embd %" PRId64 " is no multiple of n_head %" PRId64, c->C, c->H);
	c->KV = c->H;
	c->D = c->C / c->H;
	config_read_act(r, "activation_function", &c->act);
	config_read_num(r, "layer_norm_epsilon", &c->norm_epsilon);
	config_check_epsilon(r, "layer_norm_epsilon", c->norm_epsilon);
	config_read_num(r, "initializer_range", &c->initializer_range);
	config_check_epsilon(r, "initializer_range", c->initializer_range);
	c->residual_initializer_range = c->initializer_range / sqrt(2 * (double)c->L);
	config_read_flag(r, "scale_attn_weights", &scaled);
	c->attention_scale = scaled ? 0 : 1;
	config_read_flag(r, "scale_attn_by_inverse_layer_idx", &c->attention_scale_by_layer);
	config_read_flag(r, "tie_word_embeddings", &c->tied);
	config_set_window(r, c, 0);
	return r->err;
}

const struct model_family family_gpt2 = {
        .model_type = "gpt2",
        .prefix = "transformer.",
        .blocks = "h",
        .base_class = "GPT2Model",
        .causal_class = "GPT2LMHeadModel",
        .tensors = gpt2_tensors,
        .buffers = gpt2_buffers,
        .read = gpt2_read,
};
