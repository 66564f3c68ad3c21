/* BERT, RoBERTa and XLM-RoBERTa: encoders with norms behind the sums, learned positions, types of tokens. */
#include "model/families/families.h"

#include "base/err.h"

#include <inttypes.h>
#include <string.h>

/* clang-format off */
#define BERT_TENSORS                                                                                         \
	TENSOR(EMBED, "embeddings.word_embeddings.weight"),                                                  \
	TENSOR(POSITION, "embeddings.position_embeddings.weight"),                                           \
	TENSOR(TYPE, "embeddings.token_type_embeddings.weight"),                                             \
	TENSOR(EMBED_NORM_W, "embeddings.LayerNorm.weight"),                                                 \
	TENSOR(EMBED_NORM_B, "embeddings.LayerNorm.bias"),                                                   \
	TENSOR(Q_W, "attention.self.query.weight"),                                                          \
	TENSOR(Q_B, "attention.self.query.bias"),                                                            \
	TENSOR(K_W, "attention.self.key.weight"),                                                            \
	TENSOR(K_B, "attention.self.key.bias"),                                                              \
	TENSOR(V_W, "attention.self.value.weight"),                                                          \
	TENSOR(V_B, "attention.self.value.bias"),                                                            \
	TENSOR(O_W, "attention.output.dense.weight"),                                                        \
	TENSOR(O_B, "attention.output.dense.bias"),                                                          \
	TENSOR(POST_NORM1_W, "attention.output.LayerNorm.weight"),                                           \
	TENSOR(POST_NORM1_B, "attention.output.LayerNorm.bias"),                                             \
	TENSOR(UP_W, "intermediate.dense.weight"),                                                           \
	TENSOR(UP_B, "intermediate.dense.bias"),                                                             \
	TENSOR(DOWN_W, "output.dense.weight"),                                                               \
	TENSOR(DOWN_B, "output.dense.bias"),                                                                 \
	TENSOR(POST_NORM2_W, "output.LayerNorm.weight"),                                                     \
	TENSOR(POST_NORM2_B, "output.LayerNorm.bias")
/* clang-format on */

static const struct family_tensor bert_tensors[] = {
        BERT_TENSORS,
        TENSOR_IN(HEAD_OF_CLASSES, POOL_W, "pooler.dense.weight"),
        TENSOR_IN(HEAD_OF_CLASSES, POOL_B, "pooler.dense.bias"),
        TENSOR(CLASS_W, "classifier.weight"),
        TENSOR(CLASS_B, "classifier.bias"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_W, FAMILY_NO_PREFIX "cls.predictions.transform.dense.weight"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_B, FAMILY_NO_PREFIX "cls.predictions.transform.dense.bias"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_NORM_W, FAMILY_NO_PREFIX "cls.predictions.transform.LayerNorm.weight"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_NORM_B, FAMILY_NO_PREFIX "cls.predictions.transform.LayerNorm.bias"),
        TENSOR_IN(HEAD_OF_WORDS, HEAD_W, "cls.predictions.decoder.weight"),
        TENSOR_IN(HEAD_OF_WORDS, HEAD_B, "cls.predictions.bias"),
        TENSORS_END,
};

static const struct family_tensor roberta_tensors[] = {
        BERT_TENSORS,
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

static const char *const bert_buffers[] = {"embeddings.position_ids", "embeddings.token_type_ids", NULL};

static void bert_read(struct config_reader *r, struct model_config *c)
{
	const char *kind = NULL;

	config_read_str(r, "position_embedding_type", &kind);
	if (kind && strcmp(kind, "absolute"))
		config_fail(r, ERR_UNSUPPORTED,
		        "position_embedding_type is %.60s; only absolute is supported", kind);
	config_refuse_flag(r, "is_decoder");
	config_read_int(r, "type_vocab_size", &c->types, 1, CONFIG_SIZE_MAX);
	config_words(c, c->act);
}

/* The first position has the row behind that of the pad token. */
static void roberta_read(struct config_reader *r, struct model_config *c)
{
	bert_read(r, c);
	c->words_act = ACT_GELU;
	c->position_offset = (c->pad_id < 0 ? 1 : c->pad_id) + 1;
	c->max_positions -= c->position_offset;
	if (c->max_positions < 1)
		config_fail(r, ERR_INPUT,
		        "max_position_embeddings leaves no position: the first %" PRId64 " are not used",
		        c->position_offset);
}

/* clang-format off */
#define BERT_DEFAULTS                                                                                        \
	.C = 768, .F = 3072, .L = 12, .H = 12, .types = 2, .norm = NORM_LAYER, .norm_epsilon = 1e-12,        \
	.norm_after_sum = 1, .act = ACT_GELU, .pool_act = ACT_TANH, .class_pool = POOL_CLS, .is_encoder = 1, \
	.tied = 1, .dropout = 0.1, .dropout_key = "hidden_dropout_prob", .eos_count = 0
#define BERT_FACTS                                                                                           \
	.blocks = "encoder.layer", .buffers = bert_buffers, .keys = {.epsilon = "layer_norm_eps"},           \
	.whole_heads = 1, .one_size_of_heads = 1
/* clang-format on */

const struct model_family family_bert = {
        .model_type = "bert",
        .prefix = "bert.",
        .base_class = "BertModel",
        .causal_class = "BertForMaskedLM",
        .words_bias_alias = "cls.predictions.decoder.bias",
        .tensors = bert_tensors,
        .defaults = {BERT_DEFAULTS, .V = 30522, .max_positions = 512, .bos_id = -1, .pad_id = 0},
        BERT_FACTS,
        .read = bert_read,
};

const struct model_family family_roberta = {
        .model_type = "roberta",
        .prefix = "roberta.",
        .base_class = "RobertaModel",
        .causal_class = "RobertaForMaskedLM",
        .words_bias_alias = "lm_head.decoder.bias",
        .tensors = roberta_tensors,
        .defaults = {BERT_DEFAULTS, .V = 50265, .max_positions = 512, .bos_id = 0, .pad_id = 1},
        BERT_FACTS,
        .read = roberta_read,
};

const struct model_family family_xlm_roberta = {
        .model_type = "xlm-roberta",
        .prefix = "roberta.",
        .base_class = "XLMRobertaModel",
        .causal_class = "XLMRobertaForMaskedLM",
        .words_bias_alias = "lm_head.decoder.bias",
        .tensors = roberta_tensors,
        .defaults = {BERT_DEFAULTS, .V = 30522, .max_positions = 512, .bos_id = 0, .pad_id = 1},
        BERT_FACTS,
        .read = roberta_read,
};
