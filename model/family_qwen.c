#include "base/err.h"
#include "model/parts.h"

/* What Qwen2 and Qwen3 share. */
static void qwen_read(struct config_reader *r, struct model_config *c)
{
	*c = (struct model_config){
	        .model_type = c->model_type,
	        .V = 151936,
	        .C = 4096,
	        .F = 22016,
	        .L = 32,
	        .H = 32,
	        .max_positions = 32768,
	        .norm = NORM_RMS,
	        .norm_epsilon = 1e-6,
	        .act = ACT_SILU,
	        .gated = 1,
	        .qkv = QKV_SEPARATE,
	        .initializer_range = 0.02,
	        .bos_id = -1,
	};
	config_read_sizes(r, c);
	config_read_kv_heads(r, c, 32);
	config_read_act(r, "hidden_act", &c->act);
	config_read_num(r, "rms_norm_eps", &c->norm_epsilon);
	config_check_epsilon(r, "rms_norm_eps", c->norm_epsilon);
	config_read_flag(r, "tie_word_embeddings", &c->tied);
	config_read_pad(r, c);
	config_warn_ignored(r, "mlp_bias", "Qwen has none");
}

static void qwen_read_attention(struct config_reader *r, struct model_config *c)
{
	int64_t window = 4096, from = 28;
	int use = 0;

	config_read_rope(r, c, &(struct rope_keys){"rope_theta", "partial_rotary_factor", 1, 0});
	config_read_flag(r, "use_sliding_window", &use);
	config_read_int(r, "sliding_window", &window, use ? 1 : INT32_MIN, INT32_MAX);
	config_read_int(r, "max_window_layers", &from, INT32_MIN, INT32_MAX);
	config_read_layer_windows(r, c, use && !config_is_null(r, "sliding_window") ? window : 0, from);
}

static int qwen2_read(struct config_reader *r, struct model_config *c)
{
	qwen_read(r, c);
	c->q_bias = c->k_bias = c->v_bias = 1;
	config_read_head_dim(r, c);
	qwen_read_attention(r, c);
	return r->err;
}

static int qwen3_read(struct config_reader *r, struct model_config *c)
{
	int attention_bias = 0;

	qwen_read(r, c);
	c->qk_norm = 1;
	c->D = 128;
	config_read_size(r, "head_dim", &c->D);
	if (config_is_null(r, "head_dim"))
		config_fail(r, ERR_INPUT, "head_dim is null; Qwen3 needs a number");
	config_read_flag(r, "attention_bias", &attention_bias);
	c->q_bias = c->k_bias = c->v_bias = c->o_bias = attention_bias;
	qwen_read_attention(r, c);
	return r->err;
}

const struct model_family family_qwen2 = {
        .model_type = "qwen2",
        .prefix = "model.",
        .blocks = "layers",
        .base_class = "Qwen2Model",
        .causal_class = "Qwen2ForCausalLM",
        .tensors = llama_tensors,
        .buffers = llama_buffers,
        .read = qwen2_read,
};

const struct model_family family_qwen3 = {
        .model_type = "qwen3",
        .prefix = "model.",
        .blocks = "layers",
        .base_class = "Qwen3Model",
        .causal_class = "Qwen3ForCausalLM",
        .tensors = llama_tensors,
        .buffers = llama_buffers,
        .read = qwen3_read,
};
