#include "base/err.h"
#include "model/parts.h"

#include <inttypes.h>

static const struct family_tensor gpt_neox_tensors[] = {
        {ROLE_EMBED, "embed_in.weight"},
        {ROLE_NORM1_W, "input_layernorm.weight"},
        {ROLE_NORM1_B, "input_layernorm.bias"},
        {ROLE_NORM2_W, "post_attention_layernorm.weight"},
        {ROLE_NORM2_B, "post_attention_layernorm.bias"},
        {ROLE_QKV_W, "attention.query_key_value.weight"},
        {ROLE_QKV_B, "attention.query_key_value.bias"},
        {ROLE_O_W, "attention.dense.weight"},
        {ROLE_O_B, "attention.dense.bias"},
        {ROLE_UP_W, "mlp.dense_h_to_4h.weight"},
        {ROLE_UP_B, "mlp.dense_h_to_4h.bias"},
        {ROLE_DOWN_W, "mlp.dense_4h_to_h.weight"},
        {ROLE_DOWN_B, "mlp.dense_4h_to_h.bias"},
        {ROLE_FINAL_NORM_W, "final_layer_norm.weight"},
        {ROLE_FINAL_NORM_B, "final_layer_norm.bias"},
        {ROLE_HEAD_W, "embed_out.weight"},
        {ROLE_COUNT, NULL},
};

static const char *const gpt_neox_buffers[] = {
        "attention.bias", "attention.masked_bias", "rotary_emb.inv_freq", NULL};

static int gpt_neox_read(struct config_reader *r, struct model_config *c)
{
	int64_t head_dim;
	int attention_bias = 1;

	*c = (struct model_config){
	        .model_type = c->model_type,
	        .V = 50432,
	        .C = 6144,
	        .F = 24576,
	        .L = 44,
	        .H = 64,
	        .max_positions = 2048,
	        .norm = NORM_LAYER,
	        .norm_epsilon = 1e-5,
	        .act = ACT_GELU,
	        .parallel_residual = 1,
	        .norm_bias = 1,
	        .mlp_bias = 1,
	        .qkv = QKV_FUSED_BY_HEAD,
	        .pad_id = -1,
	        .initializer_range = 0.02,
	        .eos_ids = {2},
	        .eos_count = 1,
	        .bos_id = 0,
	};
	config_read_sizes(r, c);
	if (!r->err && c->C % c->H)
		config_fail(r, ERR_INPUT,
		        "hidden_size %" PRId64 " is no multiple of num_attention_heads %" PRId64, c->C, c->H);
	c->KV = c->H;
	head_dim = c->D = c->C / c->H;
	config_read_size(r, "head_dim", &head_dim);
	if (head_dim != c->D)
		config_fail(r, ERR_UNSUPPORTED,
		        "head_dim %" PRId64 ": GPT-NeoX has hidden_size / num_attention_heads, %" PRId64,
		        head_dim, c->D);
	config_read_act(r, "hidden_act", &c->act);
	config_read_num(r, "layer_norm_eps", &c->norm_epsilon);
	config_check_epsilon(r, "layer_norm_eps", c->norm_epsilon);
	config_read_flag(r, "attention_bias", &attention_bias);
	c->q_bias = c->k_bias = c->v_bias = c->o_bias = attention_bias;
	config_read_flag(r, "use_parallel_residual", &c->parallel_residual);
	config_read_flag(r, "tie_word_embeddings", &c->tied);
	config_read_rope(r, c, &(struct rope_keys){"rotary_emb_base", "rotary_pct", 0.25, 1});
	config_set_window(r, c, 0);
	return r->err;
}

const struct model_family family_gpt_neox = {
        .model_type = "gpt_neox",
        .prefix = "gpt_neox.",
        .blocks = "layers",
        .base_class = "GPTNeoXModel",
        .causal_class = "GPTNeoXForCausalLM",
        .tensors = gpt_neox_tensors,
        .head_alias = "lm_head.weight",
        .buffers = gpt_neox_buffers,
        .read = gpt_neox_read,
};
