/* The description of a model in terms that all families share: sizes, kinds, the settings of each block.
 *
 * A family (model/family.h) fills it from a config.json. The tables (model/model.h) and the forward and
 * backward of each stage (model/blocks) follow from it.
 */
#ifndef FERRY_MODEL_MODEL_CONFIG_H
#define FERRY_MODEL_MODEL_CONFIG_H

#include "device/act_kind.h"
#include "device/attention_mask.h"
#include "device/relative_rule.h"
#include "device/rope_pairs.h"
#include "device/route_rule.h"
#include "model/pooling.h"
#include "model/roles.h"

#include <stdint.h>

enum norm_kind { NORM_RMS, NORM_LAYER };
enum rope_kind {
	ROPE_NONE,
	ROPE_DEFAULT,
	ROPE_LINEAR,
	ROPE_LLAMA3,
	ROPE_YARN,
	ROPE_LONGROPE,
	ROPE_PROPORTIONAL
};

struct rope_config {
	enum rope_kind kind;
	double theta, factor;
	double low_freq_factor, high_freq_factor; /* llama3 */
	double beta_fast, beta_slow;              /* yarn */
	double attention_factor;                  /* yarn, longrope: multiplies cos and sin; 1 elsewhere */
	int truncate;                             /* yarn */
	double query_beta; /* 0: none. Else q is also multiplied by 1 + query_beta * log(1 + floor(position /
	                      original_max_position_embeddings)) */
	int64_t original_max_position_embeddings; /* llama3, yarn, longrope; any kind with query_beta */
	double *factors;  /* longrope: [2][rotary / 2], divisors of each frequency, first for documents of up
	                     to original_max_position_embeddings tokens, then for longer ones */
	int64_t rotary;   /* rotated dims of each head, even; 0 with ROPE_NONE */
	int64_t turned;   /* proportional: the first pairs of these turn, the others keep their place */
	double partial;   /* proportional, in a family's default: the part of pairs that turn */
	int is_bounded;   /* "dynamic": other angles, which ferry lacks, beyond max_positions tokens */
	int is_backwards; /* rotates by negative angles (NanoChat) */
	int64_t frequency_dim; /* exponents are -2j / frequency_dim: rotary, or one less if a partial rotary
	                          size was odd */
};

enum { ROPES_MAX = 2 };

/* A norm, by the role of its weight. */
struct norm_config {
	double epsilon;
	double weight_offset; /* added to the weight */
	int is_plain;         /* the norm has neither weight nor bias, though `has` says 1 */
};

/* One stage of a block. */
struct block_stage {
	enum stage_kind kind;
	int begins_group; /* 1: a group of its own begins with it (model/model.h) */
};
enum { BLOCK_STAGES_MAX = 16, BLOCK_TAPS_MAX = 8 };

/* Heads of the gated delta rule; of a scan, groups of B and C of so many states, and heads of x
 * (device/op_recurrent.h). */
struct delta_config {
	int64_t key_heads, value_heads, key_dim, value_dim;
};

static inline int64_t delta_value_cols(const struct delta_config *d)
{
	return d->value_heads * d->value_dim;
}

/* Columns of q, k and v together; of x, B and C of a scan. */
static inline int64_t delta_qkv_cols(const struct delta_config *d)
{
	return 2 * d->key_heads * d->key_dim + delta_value_cols(d);
}

/* What Mamba-2's scan has beside its heads. */
struct scan_config {
	double step_low, step_high;
	int norm_first; /* the norm of its output comes before the gate */
};

/* Numbers that multiply parts of a layer (Falcon-H1); 0: 1. The parts of a scan's projection: the gate, x, B,
 * C, steps. */
enum { SCAN_PARTS = 5 };
struct block_scales {
	double attention_in, attention_out;
	double scan_in, scan_out, scan[SCAN_PARTS];
	double gate, down; /* the gate of an MLP before its activation; the MLP's output */
};

/* Columns of a scan's projection: the gate, x, B, C, and steps. */
static inline int64_t scan_in_cols(const struct delta_config *d)
{
	return d->value_heads * (d->value_dim + 1) + delta_qkv_cols(d);
}

/* Experts of a block: matrices of which a router chooses some for each token (device/op_experts.h). */
struct experts_config {
	int64_t count, chosen; /* experts, and those of each token */
	int64_t F, shared;     /* inner width of one, and of the shared expert; 0: there is none */
	int64_t width;         /* of the input and output of one; 0: as the stream's */
	enum route_rule rule;  /* from logits to weights */
	int is_normed;         /* the weights of a token are divided by their sum */
	double scale;          /* then multiplied by this */
	double logit_scale;    /* multiplies the router's logits; 0: 1 */
	int in_out;            /* matrices are stored [in, out] */
	int is_either;         /* files may also have them the other way (model_fit_experts) */
	double alpha, limit;   /* limit not 0: gates and ups by turns, in the activation of op_glu_limited */
	int64_t groups, groups_chosen; /* experts come from the best groups_chosen of so many; 1: any */
	int64_t part; /* experts that are on the device at once (model/experts_parts.h); 0: all */
};

static inline int64_t experts_width(const struct experts_config *experts, int64_t C)
{
	return experts->width ? experts->width : C;
}

/* Latent attention. A head's query and key have `own` columns that do not rotate, then `shared` that do; its
 * value has `value`. Attention's heads are as wide as the wider of both (D), the rest is 0. */
struct latent_config {
	int64_t q_rank, kv_rank; /* q_rank 0: one matrix makes q; kv_rank 0: none of this */
	int64_t own, shared, value;
};

struct adapter_config {
	int64_t rank; /* 0: none; so is any where the model's adapter_rank is 0 */
	double scale;
};

/* What a block is. Blocks of one model may differ in all of it. */
struct block_config {
	struct block_stage stage[BLOCK_STAGES_MAX]; /* in the order of forward */
	int stage_count;         /* 0: the kinds for which the block has a matrix (model/roles.h) */
	uint8_t has[ROLE_COUNT]; /* 1: the block has a tensor of this role */
	int64_t H, KV, D, F;     /* sizes of this block, as the model's below */
	double attention_scale;  /* scores are multiplied by it */
	int64_t window; /* a token sees this many tokens, including itself; 0: all earlier tokens of its
	                   document */
	int rope;       /* index of the rotary setting for q and k; -1: none */
	enum attention_mask mask;
	double clip;      /* q, k and v, before rotation, are kept within it; 0: any value (clip_qkv) */
	double score_cap; /* of attention's scores (device/op_attention.h); 0: none */
	int has_bias;     /* 1: the last value that attention reads is a bias by distance (model/values.h) */
	int attention_gate; /* 1: attention's output is multiplied by the sigmoid of a gate; behind each head's
	                       rows of q, its projection has as many of the gate */
	struct latent_config latent;
	struct delta_config delta; /* with DELTA_QKV_W or SCAN_IN_W */
	struct scan_config scan;   /* with SCAN_IN_W */
	struct block_scales scales;
	int64_t taps;                  /* of the filters of CONV_W, SCAN_CONV_W or CONV_FILTER_W */
	struct experts_config experts; /* with ROUTER_W */
	struct adapter_config adapter[ROLE_COUNT]; /* by the role of A and of B (model/adapter.h) */
};

/* A stage by its kind and block (-1: outside of blocks). Values that stages make and read: model/values.h. */
struct stage_place {
	enum stage_kind kind;
	int layer;
};
struct value_config {
	int64_t columns;
	struct stage_place maker;
};
struct value_reader {
	int value;
	struct stage_place place;
};

/* A new field that changes numbers is also compared on resume: model/compare.c. */
struct model_config {
	const char *model_type; /* as in config.json: "llama", "gpt2", ... (static string) */
	int64_t V, C, L;        /* vocabulary, width of the hidden state, blocks */
	/* Of blocks for which the family says nothing else: heads of queries, heads of keys and values, width
	 * of a head, inner width of the MLP. For anything but reading config.json: `block`. */
	int64_t H, KV, D, F;
	int64_t max_positions;   /* from config.json; a hard limit only for learned positions */
	int64_t position_offset; /* row of position 0 in the table of learned positions (OPT: 2) */
	uint8_t has[ROLE_COUNT]; /* 1: a tensor of this role outside of blocks; also 1 for a tied head */
	int tensor_set;          /* which names some tensors have (family.h) */
	enum norm_kind norm;
	/* Of norms for which the family says nothing else; `norm_of` has those of each. */
	double norm_epsilon;
	double norm_weight_offset; /* Gemma: 1 */
	int norm_plain;            /* OLMo: 1 */
	struct norm_config norm_of[ROLE_COUNT];
	int64_t norm_zeros; /* elements of the longest norm without a weight; 0: none. By model_build */
	enum act_kind act;
	int parallel_residual; /* x + attn(norm1 x) + mlp(norm2 x) */
	int weight_in_out;     /* matrices of blocks are stored [in, out] (GPT-2's Conv1D) */
	int qk_norm_whole; /* q's norm is over all of its heads together, k's too (OLMo 2); else head by head
	                    */
	int qk_norm_after_rope; /* the norms of q and k follow rotation (Hunyuan); else they come before it */
	/* A fused projection gives q, k, v of head 0, then of head 1, ... (GPT-NeoX). Where heads of q share
	 * k and v, it gives those heads of q, then their k and v (Falcon 40B). 0: all q, all k, all v. */
	int qkv_by_head;
	struct rope_config rope[ROPES_MAX];
	int rope_count; /* 0: no rotary positions */
	enum rope_pairs rope_pairs;
	double attention_scale;       /* of all blocks; 0: each has 1 / sqrt(D) */
	int attention_scale_by_layer; /* block i divides it by i + 1 */
	struct block_config *block;   /* [L] */
	struct value_config *value;   /* that later layers read */
	struct value_reader *value_reader;
	int value_count, value_reader_count;
	/* Inputs of layers: numbers for each, and rows of their table. */
	int64_t input_columns, inputs_vocab;
	double embed_scale;            /* multiplies the embedding's output; 0: 1 */
	int embed_scale_rounds;        /* it is rounded to the compute dtype first (Gemma) */
	int64_t relative_rows;         /* of RELATIVE, at least as many as the rule has */
	struct relative_rule relative; /* from distances to these rows */
	double residual_scale;  /* multiplies the outputs of attention and the MLP before the residual sum; 0:
	                          1 */
	double logit_divisor;   /* divides all logits, before their cap; 0: 1 */
	double logit_cap;       /* logits l become cap * tanh(l / cap); 0: no cap */
	struct pooling pooling; /* of an embedder or a classifier */
	uint8_t offers
	        [ROLE_COUNT];    /* 1: a head of this config has the tensor, if the family names it for it */
	enum act_kind pool_act;  /* behind POOL of a classifier */
	enum act_kind words_act; /* the same of a head of masked words, */
	int words_tied;          /* whose last matrix is the embedding */
	enum pool_mode class_pool; /* of a classifier; NONE: the last token */
	int tied;                  /* the head is the embedding */
	int64_t pad_id;            /* embedding row without input-side gradient; -1: none */
	int adapter_magnitudes;    /* 1: DoRA, adapters have magnitudes (model/adapter.h) */
	int adapter_by_parameter;  /* 1: those of experts were named by parameters (model/adapter.h) */
	double adapter_dropout; /* share of the elements of an adapter's input that a training step drops */
	int64_t labels;         /* rows of CLASS_W */
	int64_t types;          /* rows of TYPE */
	int norm_after_sum;     /* POST_NORM1 and POST_NORM2 are over the sum of stream and branch (BERT) */
	int is_encoder;         /* its head, if it has one, gives no logits of a next token */
	int is_classifier;      /* config.json names a class that classifies: HEAD_OF_ (model/family.h) */
	/* The loss that keeps experts evenly used (model/blocks/balance.h): whether transformers has it for
	 * this class, and config.json asks for it; router_aux_loss_coef; this run's coefficient, or 0. */
	int balance_class, balance_asked;
	double balance_coef, balance;
	int64_t adapter_rank; /* the largest of all adapters; 0: none (model/adapter.h) */
	struct adapter_config adapter[ROLE_COUNT]; /* those outside of blocks */
	double initializer_range;
	double residual_initializer_range; /* of the matrices that write to the residual stream */
	int64_t eos_ids[16];               /* tokens that end a text */
	int eos_count;
	int64_t bos_id; /* -1 none */
	/* The largest dropout that transformers uses for this model, and its key; 0: none. ferry trains
	 * without dropout. */
	double dropout;
	const char *dropout_key;
};

/* The adapter of a role, in a block or (layer -1) outside of blocks. */
static inline const struct adapter_config *config_adapter(
        const struct model_config *c, enum tensor_role role, int layer)
{
	return layer >= 0 ? &c->block[layer].adapter[role] : &c->adapter[role];
}

/* The MLP is act(gate) * up, else act(up). */
static inline int block_is_gated(const struct block_config *b)
{
	return b->has[ROLE_GATE_W] || b->has[ROLE_GATE_UP_W];
}

#endif
