/* GPT-NeoX, Pythia: parallel residual, LayerNorm, partial rotary positions, q, k, v fused by head. */
#include "model/families/families.h"

#include "base/err.h"

#include <inttypes.h>

static const struct family_tensor gpt_neox_tensors[] = {
        TENSOR(EMBED, "embed_in.weight"),
        TENSOR(NORM1_W, "input_layernorm.weight"),
        TENSOR(NORM1_B, "input_layernorm.bias"),
        TENSOR(NORM2_W, "post_attention_layernorm.weight"),
        TENSOR(NORM2_B, "post_attention_layernorm.bias"),
        TENSOR(QKV_W, "attention.query_key_value.weight"),
        TENSOR_IF(QKV_B, "attention.query_key_value.bias", "attention_bias", 1),
        TENSOR(O_W, "attention.dense.weight"),
        TENSOR_IF(O_B, "attention.dense.bias", "attention_bias", 1),
        TENSOR(UP_W, "mlp.dense_h_to_4h.weight"),
        TENSOR(UP_B, "mlp.dense_h_to_4h.bias"),
        TENSOR(DOWN_W, "mlp.dense_4h_to_h.weight"),
        TENSOR(DOWN_B, "mlp.dense_4h_to_h.bias"),
        TENSOR(FINAL_NORM_W, "final_layer_norm.weight"),
        TENSOR(FINAL_NORM_B, "final_layer_norm.bias"),
        TENSOR(HEAD_W, "embed_out.weight"),
        TENSORS_END,
};

static const char *const gpt_neox_buffers[] = {
        "attention.bias", "attention.masked_bias", "rotary_emb.inv_freq", NULL};

static void gpt_neox_read(struct config_reader *r, struct model_config *c)
{
	int64_t head_dim = c->D;

	config_read_size(r, "head_dim", &head_dim);
	if (head_dim != c->D)
		config_fail(r, ERR_UNSUPPORTED,
		        "head_dim %" PRId64 ": GPT-NeoX has hidden_size / num_attention_heads, %" PRId64,
		        head_dim, c->D);
	config_read_flag(r, "use_parallel_residual", &c->parallel_residual);
}

const struct model_family family_gpt_neox = {
        .model_type = "gpt_neox",
        .prefix = "gpt_neox.",
        .base_class = "GPTNeoXModel",
        .causal_class = "GPTNeoXForCausalLM",
        .tensors = gpt_neox_tensors,
        .head_alias = "lm_head.weight",
        .buffers = gpt_neox_buffers,
        .defaults = {.V = 50432,
                .C = 6144,
                .F = 24576,
                .L = 44,
                .H = 64,
                .max_positions = 2048,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .act = ACT_GELU,
                .parallel_residual = 1,
                .qkv_by_head = 1,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 0,
                .pad_id = -1},
        .keys = {.epsilon = "layer_norm_eps"},
        .rope = {.theta = "rotary_emb_base",
                .partial = "rotary_pct",
                .partial_otherwise = 0.25,
                .partial_in_default = 1},
        .whole_heads = 1,
        .one_size_of_heads = 1,
        .pads_nothing = 1,
        .read = gpt_neox_read,
};
