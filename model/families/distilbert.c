/* DistilBERT: BERT with half of the layers, without types of tokens, under names of its own. */
#include "model/families/families.h"

static const struct family_tensor distilbert_tensors[] = {
        TENSOR(EMBED, "embeddings.word_embeddings.weight"),
        TENSOR(POSITION, "embeddings.position_embeddings.weight"),
        TENSOR(EMBED_NORM_W, "embeddings.LayerNorm.weight"),
        TENSOR(EMBED_NORM_B, "embeddings.LayerNorm.bias"),
        TENSOR(Q_W, "attention.q_lin.weight"),
        TENSOR(Q_B, "attention.q_lin.bias"),
        TENSOR(K_W, "attention.k_lin.weight"),
        TENSOR(K_B, "attention.k_lin.bias"),
        TENSOR(V_W, "attention.v_lin.weight"),
        TENSOR(V_B, "attention.v_lin.bias"),
        TENSOR(O_W, "attention.out_lin.weight"),
        TENSOR(O_B, "attention.out_lin.bias"),
        TENSOR(POST_NORM1_W, "sa_layer_norm.weight"),
        TENSOR(POST_NORM1_B, "sa_layer_norm.bias"),
        TENSOR(UP_W, "ffn.lin1.weight"),
        TENSOR(UP_B, "ffn.lin1.bias"),
        TENSOR(DOWN_W, "ffn.lin2.weight"),
        TENSOR(DOWN_B, "ffn.lin2.bias"),
        TENSOR(POST_NORM2_W, "output_layer_norm.weight"),
        TENSOR(POST_NORM2_B, "output_layer_norm.bias"),
        TENSOR_IN(HEAD_OF_CLASSES, POOL_W, FAMILY_NO_PREFIX "pre_classifier.weight"),
        TENSOR_IN(HEAD_OF_CLASSES, POOL_B, FAMILY_NO_PREFIX "pre_classifier.bias"),
        TENSOR(CLASS_W, "classifier.weight"),
        TENSOR(CLASS_B, "classifier.bias"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_W, FAMILY_NO_PREFIX "vocab_transform.weight"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_B, FAMILY_NO_PREFIX "vocab_transform.bias"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_NORM_W, FAMILY_NO_PREFIX "vocab_layer_norm.weight"),
        TENSOR_IN(HEAD_OF_WORDS, POOL_NORM_B, FAMILY_NO_PREFIX "vocab_layer_norm.bias"),
        TENSOR_IN(HEAD_OF_WORDS, HEAD_W, "vocab_projector.weight"),
        TENSOR_IN(HEAD_OF_WORDS, HEAD_B, "vocab_projector.bias"),
        TENSORS_END,
};

static const char *const distilbert_buffers[] = {"embeddings.position_ids", NULL};

static void distilbert_read(struct config_reader *r, struct model_config *c)
{
	(void)r;
	config_words(c, c->act);
}

const struct model_family family_distilbert = {
        .model_type = "distilbert",
        .prefix = "distilbert.",
        .blocks = "transformer.layer",
        .base_class = "DistilBertModel",
        .causal_class = "DistilBertForMaskedLM",
        .tensors = distilbert_tensors,
        .buffers = distilbert_buffers,
        .defaults = {.V = 30522,
                .C = 768,
                .F = 3072,
                .L = 6,
                .H = 12,
                .max_positions = 512,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-12,
                .norm_after_sum = 1,
                .act = ACT_GELU,
                .pool_act = ACT_RELU,
                .class_pool = POOL_CLS,
                .is_encoder = 1,
                .tied = 1,
                .dropout = 0.1,
                .dropout_key = "dropout",
                .bos_id = -1,
                .pad_id = 0},
        .keys = {.hidden = "dim",
                .layers = "n_layers",
                .heads = "n_heads",
                .inner = "hidden_dim",
                .act = "activation",
                .epsilon = FAMILY_NO_KEY},
        .whole_heads = 1,
        .one_size_of_heads = 1,
        .read = distilbert_read,
};
