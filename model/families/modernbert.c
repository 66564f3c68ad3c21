/* ModernBERT: an encoder with norms before the sums, rotary positions, gated MLPs, windows in most blocks. */
#include "model/families/families.h"

#include "base/err.h"

#include <string.h>

static const struct family_tensor modernbert_tensors[] = {
        TENSOR(EMBED, "embeddings.tok_embeddings.weight"),
        TENSOR(EMBED_NORM_W, "embeddings.norm.weight"),
        TENSOR_IF(EMBED_NORM_B, "embeddings.norm.bias", "norm_bias", 0),
        TENSOR(NORM1_W, "attn_norm.weight"),
        TENSOR_IF(NORM1_B, "attn_norm.bias", "norm_bias", 0),
        TENSOR(QKV_W, "attn.Wqkv.weight"),
        TENSOR_IF(QKV_B, "attn.Wqkv.bias", "attention_bias", 0),
        TENSOR(O_W, "attn.Wo.weight"),
        TENSOR_IF(O_B, "attn.Wo.bias", "attention_bias", 0),
        TENSOR(NORM2_W, "mlp_norm.weight"),
        TENSOR_IF(NORM2_B, "mlp_norm.bias", "norm_bias", 0),
        TENSOR(GATE_UP_W, "mlp.Wi.weight"),
        TENSOR(DOWN_W, "mlp.Wo.weight"),
        TENSOR(FINAL_NORM_W, "final_norm.weight"),
        TENSOR_IF(FINAL_NORM_B, "final_norm.bias", "norm_bias", 0),
        TENSOR(POOL_W, FAMILY_NO_PREFIX "head.dense.weight"),
        TENSOR_IF(POOL_B, FAMILY_NO_PREFIX "head.dense.bias", "classifier_bias", 0),
        TENSOR(POOL_NORM_W, FAMILY_NO_PREFIX "head.norm.weight"),
        TENSOR_IF(POOL_NORM_B, FAMILY_NO_PREFIX "head.norm.bias", "norm_bias", 0),
        TENSOR(CLASS_W, "classifier.weight"),
        TENSOR(CLASS_B, "classifier.bias"),
        TENSOR_IN(HEAD_OF_WORDS, HEAD_W, "decoder.weight"),
        {.role = ROLE_HEAD_B,
                .name = "decoder.bias",
                .set = HEAD_OF_WORDS,
                .when = "decoder_bias",
                .otherwise = 1},
        TENSORS_END,
};

/* The first block has no norm before attention: that behind the embedding stands for it. */
static void modernbert_read(struct config_reader *r, struct model_config *c)
{
	const char *pool = NULL;

	config_refuse_flag(r, "mlp_bias");
	if (json_object_size(json_object_get(r->object, "rope_scaling")))
		config_fail(r, ERR_UNSUPPORTED, "rope_scaling is not supported for modernbert");
	config_read_act(r, "classifier_activation", &c->pool_act);
	config_read_str(r, "classifier_pooling", &pool);
	if (pool && strcmp(pool, "cls") && strcmp(pool, "mean"))
		config_fail(r, ERR_INPUT, "classifier_pooling is %.40s; expected cls or mean", pool);
	c->class_pool = pool && !strcmp(pool, "mean") ? POOL_MEAN : POOL_CLS;
	config_words(c, c->pool_act);
	c->block[0].has[ROLE_NORM1_W] = c->block[0].has[ROLE_NORM1_B] = 0;
}

const struct model_family family_modernbert = {
        .model_type = "modernbert",
        .base_class = "ModernBertModel",
        .causal_class = "ModernBertForMaskedLM",
        .tensors = modernbert_tensors,
        .defaults = {.V = 50368,
                .C = 768,
                .F = 1152,
                .L = 22,
                .H = 12,
                .max_positions = 8192,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .act = ACT_GELU,
                .pool_act = ACT_GELU,
                .class_pool = POOL_CLS,
                .is_encoder = 1,
                .tied = 1,
                .eos_ids = {50282},
                .eos_count = 1,
                .bos_id = 50281,
                .pad_id = 50283},
        .keys = {.act = "hidden_activation", .epsilon = "norm_eps"},
        .window = {.read = 1,
                .key = "local_attention",
                .both_sides = 1,
                .needed = 1,
                .otherwise = 128,
                .full_every = 3,
                .full_first = 1,
                .full_every_key = "global_attn_every_n_layers"},
        .rope = {.theta = "global_rope_theta",
                .theta_otherwise = 160000,
                .two_sets = 1,
                .local_theta = "local_rope_theta",
                .local_theta_otherwise = 10000},
        .whole_heads = 1,
        .one_size_of_heads = 1,
        .read = modernbert_read,
};
