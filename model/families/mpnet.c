/* MPNet: RoBERTa without types of tokens, and with a bias by distance in all attention. */
#include "model/families/families.h"

#include "base/err.h"
#include "model/values.h"

#include <inttypes.h>

static const struct family_tensor mpnet_tensors[] = {
        TENSOR(EMBED, "embeddings.word_embeddings.weight"),
        TENSOR(POSITION, "embeddings.position_embeddings.weight"),
        TENSOR(EMBED_NORM_W, "embeddings.LayerNorm.weight"),
        TENSOR(EMBED_NORM_B, "embeddings.LayerNorm.bias"),
        TENSOR(Q_W, "attention.attn.q.weight"),
        TENSOR(Q_B, "attention.attn.q.bias"),
        TENSOR(K_W, "attention.attn.k.weight"),
        TENSOR(K_B, "attention.attn.k.bias"),
        TENSOR(V_W, "attention.attn.v.weight"),
        TENSOR(V_B, "attention.attn.v.bias"),
        TENSOR(O_W, "attention.attn.o.weight"),
        TENSOR(O_B, "attention.attn.o.bias"),
        TENSOR(POST_NORM1_W, "attention.LayerNorm.weight"),
        TENSOR(POST_NORM1_B, "attention.LayerNorm.bias"),
        TENSOR(UP_W, "intermediate.dense.weight"),
        TENSOR(UP_B, "intermediate.dense.bias"),
        TENSOR(DOWN_W, "output.dense.weight"),
        TENSOR(DOWN_B, "output.dense.bias"),
        TENSOR(POST_NORM2_W, "output.LayerNorm.weight"),
        TENSOR(POST_NORM2_B, "output.LayerNorm.bias"),
        TENSOR(RELATIVE, "encoder.relative_attention_bias.weight"),
        TENSOR_IN(HEAD_OF_CLASSES, POOL_W, FAMILY_NO_PREFIX "classifier.dense.weight"),
        TENSOR_IN(HEAD_OF_CLASSES, POOL_B, FAMILY_NO_PREFIX "classifier.dense.bias"),
        TENSOR_IN(HEAD_OF_CLASSES, CLASS_W, "classifier.out_proj.weight"),
        TENSOR_IN(HEAD_OF_CLASSES, CLASS_B, "classifier.out_proj.bias"),
        TENSOR_IN(HEAD_OF_TOKENS, CLASS_W, "classifier.weight"),
        TENSOR_IN(HEAD_OF_TOKENS, CLASS_B, "classifier.bias"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_W, FAMILY_NO_PREFIX "lm_head.dense.weight"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_B, FAMILY_NO_PREFIX "lm_head.dense.bias"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_NORM_W, FAMILY_NO_PREFIX "lm_head.layer_norm.weight"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_NORM_B, FAMILY_NO_PREFIX "lm_head.layer_norm.bias"),
        TENSOR_IN(HEAD_OF_WORDS, HEAD_W, "lm_head.decoder.weight"),
        TENSOR_IN(HEAD_OF_WORDS, HEAD_B, "lm_head.bias"),
        TENSORS_END,
};

static const char *const mpnet_buffers[] = {"embeddings.position_ids", NULL};

/* transformers computes with 32 rows, however many the table has, and with pad 1, whatever config.json says.
 */
static void mpnet_read(struct config_reader *r, struct model_config *c)
{
	c->pad_id = 1;
	c->position_offset = 2;
	c->max_positions -= c->position_offset;
	if (c->max_positions < 1)
		config_fail(r, ERR_INPUT,
		        "max_position_embeddings leaves no position: the first %" PRId64 " are not used",
		        c->position_offset);
	c->relative = (struct relative_rule){.rows = 32, .distance = 128, .both_sides = 1};
	c->relative_rows = c->relative.rows;
	config_read_int(
	        r, "relative_attention_num_buckets", &c->relative_rows, c->relative.rows, CONFIG_SIZE_MAX);
	config_words(c, ACT_GELU);
	if (!r->err)
		r->err = config_value_bias(c);
}

const struct model_family family_mpnet = {
        .model_type = "mpnet",
        .prefix = "mpnet.",
        .blocks = "encoder.layer",
        .base_class = "MPNetModel",
        .causal_class = "MPNetForMaskedLM",
        .words_bias_alias = "lm_head.decoder.bias",
        .tensors = mpnet_tensors,
        .buffers = mpnet_buffers,
        .defaults = {.V = 30527,
                .C = 768,
                .F = 3072,
                .L = 12,
                .H = 12,
                .max_positions = 512,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-12,
                .norm_after_sum = 1,
                .act = ACT_GELU,
                .pool_act = ACT_TANH,
                .class_pool = POOL_CLS,
                .is_encoder = 1,
                .tied = 1,
                .dropout = 0.1,
                .dropout_key = "hidden_dropout_prob",
                .bos_id = 0,
                .pad_id = 1},
        .keys = {.epsilon = "layer_norm_eps"},
        .whole_heads = 1,
        .one_size_of_heads = 1,
        .read = mpnet_read,
};
