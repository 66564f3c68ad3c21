/* Falcon: LayerNorm, MLP beside attention, q, k, v fused with few heads of keys and values. */
#include "model/families/families.h"

#include "base/err.h"

#include <inttypes.h>
#include <string.h>

enum { FALCON_ONE_NORM = 1, FALCON_TWO_NORMS = 2 };

static const struct family_tensor falcon_tensors[] = {
        TENSOR(EMBED, "word_embeddings.weight"),
        TENSOR(QKV_W, "self_attention.query_key_value.weight"),
        TENSOR_IF(QKV_B, "self_attention.query_key_value.bias", "bias", 0),
        TENSOR(O_W, "self_attention.dense.weight"),
        TENSOR_IF(O_B, "self_attention.dense.bias", "bias", 0),
        TENSOR(UP_W, "mlp.dense_h_to_4h.weight"),
        TENSOR_IF(UP_B, "mlp.dense_h_to_4h.bias", "bias", 0),
        TENSOR(DOWN_W, "mlp.dense_4h_to_h.weight"),
        TENSOR_IF(DOWN_B, "mlp.dense_4h_to_h.bias", "bias", 0),
        TENSOR_IN(FALCON_ONE_NORM, NORM2_W, "post_attention_layernorm.weight"),
        TENSOR_IN(FALCON_ONE_NORM, NORM2_B, "post_attention_layernorm.bias"),
        TENSOR_IN(FALCON_ONE_NORM, NORM1_W, "input_layernorm.weight"),
        TENSOR_IN(FALCON_ONE_NORM, NORM1_B, "input_layernorm.bias"),
        TENSOR_IN(FALCON_TWO_NORMS, NORM1_W, "ln_attn.weight"),
        TENSOR_IN(FALCON_TWO_NORMS, NORM1_B, "ln_attn.bias"),
        TENSOR_IN(FALCON_TWO_NORMS, NORM2_W, "ln_mlp.weight"),
        TENSOR_IN(FALCON_TWO_NORMS, NORM2_B, "ln_mlp.bias"),
        GPT2_NORM_HEAD,
        TENSORS_END,
};

static const char *const falcon_older_types[] = {"RefinedWebModel", "RefinedWeb", NULL};

static const char *const falcon_buffers[] = {
        "rotary_emb.inv_freq", "rotary.inv_freq", "maybe_rotary.inv_freq", NULL};

/* Reads the heads of keys and values: one; as many as of queries; with the new architecture any number. */
static void read_heads(struct config_reader *r, struct model_config *c, int is_new)
{
	int is_shared = 1;
	int64_t heads = c->H;

	config_read_flag(r, "multi_query", &is_shared);
	config_read_size(r, "n_head_kv", &heads);
	config_read_size(r, "num_kv_heads", &heads);
	c->KV = !is_new && is_shared ? 1 : heads;
	c->qkv_by_head = is_new || !is_shared;
	if (c->H % c->KV || (c->KV != c->H && c->KV != 1 && !is_new))
		config_fail(r, ERR_INPUT,
		        "num_kv_heads is %" PRId64 "; it must %s num_attention_heads, %" PRId64, c->KV,
		        is_new ? "divide" : "equal", c->H);
}

/* "RefinedWeb" is the older name of models with the new architecture. */
static void falcon_read(struct config_reader *r, struct model_config *c)
{
	const char *type = json_string_value(json_object_get(r->object, "model_type"));
	int is_new = type && !strcmp(type, "RefinedWeb"), is_parallel = 1;
	int64_t norms = 0;

	config_refuse_flag(r, "alibi");
	config_read_flag(r, "new_decoder_architecture", &is_new);
	config_read_flag(r, "parallel_attn", &is_parallel);
	config_read_int(r, "num_ln_in_parallel_attn", &norms, 1, 2);
	read_heads(r, c, is_new);
	if (is_new && !is_parallel)
		config_fail(r, ERR_UNSUPPORTED,
		        "parallel_attn is false: not supported with new_decoder_architecture");
	if (!is_new && is_parallel && norms == 2)
		config_fail(r, ERR_UNSUPPORTED,
		        "num_ln_in_parallel_attn is 2: not supported without new_decoder_architecture");
	c->parallel_residual = is_parallel;
	c->tensor_set = is_new && norms != 1 ? FALCON_TWO_NORMS : FALCON_ONE_NORM;
	if (is_parallel && c->tensor_set == FALCON_ONE_NORM)
		config_drop_norm2(c);
}

const struct model_family family_falcon = {
        .model_type = "falcon",
        .older_types = falcon_older_types,
        .prefix = "transformer.",
        .blocks = "h",
        .base_class = "FalconModel",
        .causal_class = "FalconForCausalLM",
        .tensors = falcon_tensors,
        .buffers = falcon_buffers,
        .defaults = {.V = 65024,
                .C = 4544,
                .L = 32,
                .H = 71,
                .max_positions = 2048,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .act = ACT_GELU,
                .tied = 1,
                .eos_ids = {11},
                .eos_count = 1,
                .bos_id = 11,
                .pad_id = -1},
        .keys = {.hidden = "n_embed",
                .layers = "n_layer",
                .heads = "n_head",
                .inner = "ffn_hidden_size",
                .act = "activation",
                .epsilon = "layer_norm_epsilon"},
        .whole_heads = 1,
        .one_size_of_heads = 1,
        .pads_nothing = 1,
        .ignored = {{"apply_residual_connection_post_layernorm", "Falcon has none"}},
        .read = falcon_read,
};
