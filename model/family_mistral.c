#include "model/parts.h"

static int mistral_read(struct config_reader *r, struct model_config *c)
{
	int64_t window = 4096;

	*c = (struct model_config){
	        .model_type = c->model_type,
	        .V = 32000,
	        .C = 4096,
	        .F = 14336,
	        .L = 32,
	        .H = 32,
	        .max_positions = 131072,
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
	config_read_kv_heads(r, c, 8);
	config_read_head_dim(r, c);
	config_read_act(r, "hidden_act", &c->act);
	config_read_num(r, "rms_norm_eps", &c->norm_epsilon);
	config_check_epsilon(r, "rms_norm_eps", c->norm_epsilon);
	config_read_flag(r, "tie_word_embeddings", &c->tied);
	config_read_pad(r, c);
	config_read_rope(r, c, &(struct rope_keys){"rope_theta", "partial_rotary_factor", 1, 0});
	config_read_int(r, "sliding_window", &window, 1, INT32_MAX);
	config_read_layer_windows(r, c, config_is_null(r, "sliding_window") ? 0 : window, 0);
	config_warn_ignored(r, "attention_bias", "Mistral has none");
	config_warn_ignored(r, "mlp_bias", "Mistral has none");
	return r->err;
}

const struct model_family family_mistral = {
        .model_type = "mistral",
        .prefix = "model.",
        .blocks = "layers",
        .base_class = "MistralModel",
        .causal_class = "MistralForCausalLM",
        .tensors = llama_tensors,
        .buffers = llama_buffers,
        .read = mistral_read,
};
