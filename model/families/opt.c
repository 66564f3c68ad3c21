/* OPT: LayerNorm, biases, ReLU, learned positions that begin at row 2 of their table. */
#include "model/families/families.h"

#include "base/err.h"

#include <inttypes.h>

static const struct family_tensor opt_tensors[] = {
        LLAMA_EMBED,
        TENSOR(POSITION, "embed_positions.weight"),
        TENSOR(FINAL_NORM_W, "final_layer_norm.weight"),
        TENSOR(FINAL_NORM_B, "final_layer_norm.bias"),
        TENSOR(K_W, "self_attn.k_proj.weight"),
        TENSOR_IF(K_B, "self_attn.k_proj.bias", "enable_bias", 1),
        TENSOR(V_W, "self_attn.v_proj.weight"),
        TENSOR_IF(V_B, "self_attn.v_proj.bias", "enable_bias", 1),
        TENSOR(Q_W, "self_attn.q_proj.weight"),
        TENSOR_IF(Q_B, "self_attn.q_proj.bias", "enable_bias", 1),
        TENSOR(O_W, "self_attn.out_proj.weight"),
        TENSOR_IF(O_B, "self_attn.out_proj.bias", "enable_bias", 1),
        TENSOR(NORM1_W, "self_attn_layer_norm.weight"),
        TENSOR(NORM1_B, "self_attn_layer_norm.bias"),
        TENSOR(UP_W, "fc1.weight"),
        TENSOR_IF(UP_B, "fc1.bias", "enable_bias", 1),
        TENSOR(DOWN_W, "fc2.weight"),
        TENSOR_IF(DOWN_B, "fc2.bias", "enable_bias", 1),
        TENSOR(NORM2_W, "final_layer_norm.weight"),
        TENSOR(NORM2_B, "final_layer_norm.bias"),
        TENSOR(HEAD_W, "lm_head.weight"),
        TENSORS_END,
};

static const char *const opt_buffers[] = {"decoder.version", NULL};

static void opt_read(struct config_reader *r, struct model_config *c)
{
	int64_t embed_dim = c->C;
	int is_before = 1, has_weights = 1;
	double layerdrop = 0;

	config_read_flag(r, "do_layer_norm_before", &is_before);
	if (!is_before)
		config_fail(r, ERR_UNSUPPORTED, "do_layer_norm_before is false: not supported");
	config_read_flag(r, "layer_norm_elementwise_affine", &has_weights);
	if (!has_weights) {
		c->norm_plain = 1;
		c->norm_weight_offset = 1;
		config_set_norms(c);
		config_set_has(c, ROLE_NORM1_B, 0);
		config_set_has(c, ROLE_NORM2_B, 0);
		config_set_has(c, ROLE_FINAL_NORM_B, 0);
	}
	config_refuse_flag(r, "_remove_final_layer_norm");
	config_read_size(r, "word_embed_proj_dim", &embed_dim);
	if (embed_dim != c->C)
		config_fail(r, ERR_UNSUPPORTED,
		        "word_embed_proj_dim is %" PRId64 ": only hidden_size, %" PRId64 ", is supported",
		        embed_dim, c->C);
	config_read_num(r, "layerdrop", &layerdrop);
	if (layerdrop != 0)
		config_fail(r, ERR_UNSUPPORTED, "layerdrop is %g: not supported; set it to 0", layerdrop);
	config_read_num(r, "init_std", &c->initializer_range);
	config_check_epsilon(r, "init_std", c->initializer_range);
}

const struct model_family family_opt = {
        .model_type = "opt",
        .prefix = "model.decoder.",
        .base_class = "OPTModel",
        .causal_class = "OPTForCausalLM",
        .tensors = opt_tensors,
        .buffers = opt_buffers,
        .defaults = {.V = 50272,
                .C = 768,
                .F = 3072,
                .L = 12,
                .H = 12,
                .max_positions = 2048,
                .position_offset = 2,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .act = ACT_RELU,
                .tied = 1,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 2,
                .dropout = 0.1,
                .dropout_key = "dropout",
                .pad_id = 1},
        .keys = {.inner = "ffn_dim", .act = "activation_function", .epsilon = FAMILY_NO_KEY},
        .whole_heads = 1,
        .one_size_of_heads = 1,
        .read = opt_read,
};
