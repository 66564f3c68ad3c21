#include "base/err.h"
#include "model/parts.h"

#include <inttypes.h>

const struct family_tensor llama_tensors[] = {
        {ROLE_EMBED, "embed_tokens.weight"},
        {ROLE_Q_W, "self_attn.q_proj.weight"},
        {ROLE_Q_B, "self_attn.q_proj.bias"},
        {ROLE_K_W, "self_attn.k_proj.weight"},
        {ROLE_K_B, "self_attn.k_proj.bias"},
        {ROLE_V_W, "self_attn.v_proj.weight"},
        {ROLE_V_B, "self_attn.v_proj.bias"},
        {ROLE_O_W, "self_attn.o_proj.weight"},
        {ROLE_O_B, "self_attn.o_proj.bias"},
        {ROLE_Q_NORM_W, "self_attn.q_norm.weight"},
        {ROLE_K_NORM_W, "self_attn.k_norm.weight"},
        {ROLE_GATE_W, "mlp.gate_proj.weight"},
        {ROLE_GATE_B, "mlp.gate_proj.bias"},
        {ROLE_UP_W, "mlp.up_proj.weight"},
        {ROLE_UP_B, "mlp.up_proj.bias"},
        {ROLE_DOWN_W, "mlp.down_proj.weight"},
        {ROLE_DOWN_B, "mlp.down_proj.bias"},
        {ROLE_NORM1_W, "input_layernorm.weight"},
        {ROLE_NORM2_W, "post_attention_layernorm.weight"},
        {ROLE_FINAL_NORM_W, "norm.weight"},
        {ROLE_HEAD_W, "lm_head.weight"},
        {ROLE_COUNT, NULL},
};

const char *const llama_buffers[] = {
        "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", NULL};

static int llama_read(struct config_reader *r, struct model_config *c)
{
	int attention_bias = 0;

	*c = (struct model_config){
	        .model_type = c->model_type,
	        .V = 32000,
	        .C = 4096,
	        .F = 11008,
	        .L = 32,
	        .H = 32,
	        .max_positions = 2048,
	        .norm = NORM_RMS,
	        .norm_epsilon = 1e-6,
	        .act = ACT_SILU,
	        .gated = 1,
	        .qkv = QKV_SEPARATE,
	        .initializer_range = 0.02,
	        .eos_ids = {2},
	        .eos_count = 1,
	        .bos_id = 1,
	};
	config_read_sizes(r, c);
	config_read_kv_heads(r, c, 0);
	if (!r->err && !config_has(r, "head_dim") && c->C % c->H)
		config_fail(r, ERR_INPUT,
		        "hidden_size %" PRId64 " is no multiple of num_attention_heads %" PRId64, c->C, c->H);
	config_read_head_dim(r, c);
	config_read_act(r, "hidden_act", &c->act);
	config_read_num(r, "rms_norm_eps", &c->norm_epsilon);
	config_check_epsilon(r, "rms_norm_eps", c->norm_epsilon);
	config_read_flag(r, "attention_bias", &attention_bias);
	c->q_bias = c->k_bias = c->v_bias = c->o_bias = attention_bias;
	config_read_flag(r, "mlp_bias", &c->mlp_bias);
	config_read_flag(r, "tie_word_embeddings", &c->tied);
	config_read_pad(r, c);
	config_read_rope(r, c, &(struct rope_keys){"rope_theta", "partial_rotary_factor", 1, 0});
	config_warn_ignored(r, "sliding_window", "Llama attends to the whole row");
	config_set_window(r, c, 0);
	return r->err;
}

const struct model_family family_llama = {
        .model_type = "llama",
        .prefix = "model.",
        .blocks = "layers",
        .base_class = "LlamaModel",
        .causal_class = "LlamaForCausalLM",
        .tensors = llama_tensors,
        .buffers = llama_buffers,
        .read = llama_read,
};
