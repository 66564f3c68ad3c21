/* Compares the settings of two config.json files, apart from shapes. */
#include "model/compare.h"

#include "model/config.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

enum kind { INT, I64, REAL, ACT, FACTOR };

/* A field that changes results, by its usual key. names: of the values of an int that is no number. A FACTOR
 * is 1 where the field is 0. */
struct field {
	const char *key;
	enum kind kind;
	size_t at;
	const char *const *names;
};

static const char *const flags[] = {"false", "true"};
static const char *const norms[] = {[NORM_RMS] = "RMSNorm", [NORM_LAYER] = "LayerNorm"};
static const char *const ropes[] = {[ROPE_NONE] = "none",
        [ROPE_DEFAULT] = "default",
        [ROPE_LINEAR] = "linear",
        [ROPE_LLAMA3] = "llama3",
        [ROPE_YARN] = "yarn",
        [ROPE_LONGROPE] = "longrope",
        [ROPE_PROPORTIONAL] = "proportional"};
static const char *const pairs[] = {[ROPE_HALVES] = "halves", [ROPE_NEIGHBOURS] = "neighbours"};
static const char *const masks[MASK_COUNT] = {
        [MASK_CAUSAL] = "causal", [MASK_BIDIRECTIONAL] = "bidirectional"};
static const char *const rules[ROUTE_RULE_COUNT] = {
        [ROUTE_SOFTMAX] = "softmax", [ROUTE_SIGMOID] = "sigmoid", [ROUTE_CHOSEN] = "softmax of the chosen"};
static const char *const matrices[] = {"[out, in]", "[in, out]"};
static const char *const norm_widths[] = {"by head", "whole"};
static const char *const norm_places[] = {"before rotation", "after rotation"};
static const char *const orders[] = {"all of each", "by head"};
static const char *const directions[] = {"forward", "backward"};

/* clang-format off */
#define MODEL(key, kind, field) {key, kind, offsetof(struct model_config, field), NULL}
#define MODEL_WORD(key, names, field) {key, INT, offsetof(struct model_config, field), names}
/* clang-format on */
static const struct field model_fields[] = {
        MODEL("num_attention_heads", I64, H),
        MODEL("num_key_value_heads", I64, KV),
        MODEL("head_dim", I64, D),
        MODEL_WORD("the kind of norm", norms, norm),
        MODEL("hidden_act", ACT, act),
        MODEL_WORD("use_parallel_residual", flags, parallel_residual),
        MODEL_WORD("the order of stored matrices", matrices, weight_in_out),
        MODEL_WORD("the norms of query and key", norm_widths, qk_norm_whole),
        MODEL_WORD("the norms of query and key", norm_places, qk_norm_after_rope),
        MODEL_WORD("the order of query, key and value", orders, qkv_by_head),
        MODEL("the number of rotary settings", INT, rope_count),
        MODEL_WORD("the pairs of rotary dimensions", pairs, rope_pairs),
        MODEL("embedding_multiplier", FACTOR, embed_scale),
        MODEL("residual_multiplier", FACTOR, residual_scale),
        MODEL("logits_scaling", FACTOR, logit_divisor),
        MODEL("final_logit_softcapping", REAL, logit_cap),
        MODEL("the first row of learned positions", I64, position_offset),
        MODEL("pad_token_id", I64, pad_id),
        MODEL("the rows of distances between tokens", I64, relative.rows),
        MODEL("the largest distance between tokens", I64, relative.distance),
        MODEL_WORD("output_router_logits", flags, balance_asked),
        MODEL("router_aux_loss_coef", REAL, balance_coef),
        MODEL("the activation in a head of classes", ACT, pool_act),
        MODEL("the activation in a head of masked words", ACT, words_act),
        MODEL("poolings", INT, pooling.mode_count),
        MODEL("layers behind the pooling", INT, pooling.layer_count),
        MODEL("hidden_size_per_layer_input", I64, input_columns),
};

/* clang-format off */
#define ROPE(key, kind, field) {key, kind, offsetof(struct rope_config, field), NULL}
#define ROPE_WORD(key, names, field) {key, INT, offsetof(struct rope_config, field), names}
/* clang-format on */
static const struct field rope_fields[] = {
        ROPE("rope_theta", REAL, theta),
        ROPE_WORD("rope_type", ropes, kind),
        ROPE("the factor of rope_scaling", REAL, factor),
        ROPE("low_freq_factor", REAL, low_freq_factor),
        ROPE("high_freq_factor", REAL, high_freq_factor),
        ROPE("beta_fast", REAL, beta_fast),
        ROPE("beta_slow", REAL, beta_slow),
        ROPE("attention_factor", REAL, attention_factor),
        ROPE_WORD("truncate", flags, truncate),
        ROPE("llama_4_scaling_beta", REAL, query_beta),
        ROPE("original_max_position_embeddings", I64, original_max_position_embeddings),
        ROPE("rotary dimensions", I64, rotary),
        ROPE("partial_rotary_factor", I64, turned),
        ROPE_WORD("the direction of rotation", directions, is_backwards),
        ROPE("dimensions of rotary frequencies", I64, frequency_dim),
};

/* clang-format off */
#define NORM(key, kind, field) {key, kind, offsetof(struct norm_config, field), NULL}
#define NORM_WORD(key, names, field) {key, INT, offsetof(struct norm_config, field), names}
/* clang-format on */
static const struct field norm_fields[] = {
        NORM("rms_norm_eps (layer_norm_eps, post_norm_eps)", REAL, epsilon),
        NORM("the offset of norm weights", REAL, weight_offset),
        NORM_WORD("norms without weights", flags, is_plain),
};

/* clang-format off */
#define BLOCK(key, kind, field) {key, kind, offsetof(struct block_config, field), NULL}
#define BLOCK_WORD(key, names, field) {key, INT, offsetof(struct block_config, field), names}
/* clang-format on */
static const struct field block_fields[] = {
        BLOCK("num_attention_heads", I64, H),
        BLOCK("num_key_value_heads", I64, KV),
        BLOCK("head_dim", I64, D),
        BLOCK("the scale of attention", REAL, attention_scale),
        BLOCK("sliding_window", I64, window),
        BLOCK("the rotary setting", INT, rope),
        BLOCK("conv_L_cache", I64, taps),
        BLOCK_WORD("the attention mask", masks, mask),
        BLOCK("clip_qkv", REAL, clip),
        BLOCK("attn_logit_softcapping", REAL, score_cap),
        BLOCK_WORD("attn_output_gate", flags, attention_gate),
        BLOCK("linear_num_key_heads (n_groups)", I64, delta.key_heads),
        BLOCK("linear_num_value_heads (mamba_n_heads)", I64, delta.value_heads),
        BLOCK("linear_key_head_dim (mamba_d_state)", I64, delta.key_dim),
        BLOCK("linear_value_head_dim (mamba_d_head)", I64, delta.value_dim),
        BLOCK("time_step_min (time_step_limit)", REAL, scan.step_low),
        BLOCK("time_step_limit", REAL, scan.step_high),
        BLOCK_WORD("mamba_norm_before_gate", flags, scan.norm_first),
        BLOCK("attention_in_multiplier", FACTOR, scales.attention_in),
        BLOCK("attention_out_multiplier", FACTOR, scales.attention_out),
        BLOCK("ssm_in_multiplier", FACTOR, scales.scan_in),
        BLOCK("ssm_out_multiplier", FACTOR, scales.scan_out),
        BLOCK("ssm_multipliers (gate)", FACTOR, scales.scan[0]),
        BLOCK("ssm_multipliers (x)", FACTOR, scales.scan[1]),
        BLOCK("ssm_multipliers (B)", FACTOR, scales.scan[2]),
        BLOCK("ssm_multipliers (C)", FACTOR, scales.scan[3]),
        BLOCK("ssm_multipliers (dt)", FACTOR, scales.scan[4]),
        BLOCK("mlp_multipliers (gate)", FACTOR, scales.gate),
        BLOCK("mlp_multipliers (down)", FACTOR, scales.down),
        BLOCK("q_lora_rank", I64, latent.q_rank),
        BLOCK("kv_lora_rank", I64, latent.kv_rank),
        BLOCK("qk_nope_head_dim", I64, latent.own),
        BLOCK("qk_rope_head_dim", I64, latent.shared),
        BLOCK("v_head_dim", I64, latent.value),
        BLOCK("num_experts_per_tok", I64, experts.chosen),
        BLOCK("moe_latent_size", I64, experts.width),
        BLOCK_WORD("the router's rule", rules, experts.rule),
        BLOCK_WORD("norm_topk_prob", flags, experts.is_normed),
        BLOCK("routed_scaling_factor", REAL, experts.scale),
        BLOCK("the scale of the router's logits", REAL, experts.logit_scale),
        BLOCK("swiglu_alpha", REAL, experts.alpha),
        BLOCK("swiglu_limit", REAL, experts.limit),
        BLOCK("n_group", I64, experts.groups),
        BLOCK("topk_group", I64, experts.groups_chosen),
};

static double real_of(enum kind kind, double value)
{
	return kind == FACTOR && value == 0 ? 1 : value;
}

static int field_equal(struct str *out, const struct field *f, const void *now, const void *then)
{
	const char *a = (const char *)now + f->at, *b = (const char *)then + f->at;
	double x, y;

	switch (f->kind) {
	case INT:
		if (*(const int *)a != *(const int *)b && f->names)
			str_printf(out, "%s %s, not %s", f->key, f->names[*(const int *)a],
			        f->names[*(const int *)b]);
		else if (*(const int *)a != *(const int *)b)
			str_printf(out, "%s %d, not %d", f->key, *(const int *)a, *(const int *)b);
		return *(const int *)a == *(const int *)b;
	case I64:
		if (*(const int64_t *)a != *(const int64_t *)b)
			str_printf(out, "%s %" PRId64 ", not %" PRId64, f->key, *(const int64_t *)a,
			        *(const int64_t *)b);
		return *(const int64_t *)a == *(const int64_t *)b;
	case ACT:
		if (*(const enum act_kind *)a != *(const enum act_kind *)b)
			str_printf(out, "%s %s, not %s", f->key, config_act_name(*(const enum act_kind *)a),
			        config_act_name(*(const enum act_kind *)b));
		return *(const enum act_kind *)a == *(const enum act_kind *)b;
	default:
		x = real_of(f->kind, *(const double *)a);
		y = real_of(f->kind, *(const double *)b);
		if (x != y)
			str_printf(out, "%s %.10g, not %.10g", f->key, x, y);
		return x == y;
	}
}

static int fields_equal(
        struct str *out, const struct field *fields, size_t count, const void *now, const void *then)
{
	for (size_t i = 0; i < count; i++)
		if (!field_equal(out, &fields[i], now, then))
			return 0;
	return 1;
}

static int ropes_equal(struct str *out, const struct rope_config *now, const struct rope_config *then)
{
	size_t bytes = (size_t)now->rotary * sizeof(*now->factors); /* two tables of rotary / 2 */

	if (!fields_equal(out, rope_fields, sizeof(rope_fields) / sizeof(*rope_fields), now, then))
		return 0;
	if (!now->factors == !then->factors && (!now->factors || !memcmp(now->factors, then->factors, bytes)))
		return 1;
	str_add(out, "other long_factor or short_factor");
	return 0;
}

static int stages_equal(struct str *out, const struct block_config *now, const struct block_config *then)
{
	if (now->stage_count == then->stage_count && !memcmp(now->stage, then->stage, sizeof(now->stage)))
		return 1;
	str_add(out, "other stages");
	return 0;
}

static int poolings_equal(struct str *out, const struct pooling *now, const struct pooling *then)
{
	int equal = 1;

	for (int m = 0; m < now->mode_count && equal; m++)
		equal = now->mode[m] == then->mode[m];
	if (!equal)
		str_add(out, "the pooling");
	for (int l = 0; l < now->layer_count && equal; l++) {
		const struct pool_layer *a = &now->layer[l], *b = &then->layer[l];

		equal = a->kind == b->kind && a->act == b->act && a->has_bias == b->has_bias;
		if (!equal)
			str_add(out, "other layers behind the pooling");
	}
	return equal;
}

static int values_equal(struct str *out, const struct model_config *now, const struct model_config *then)
{
	size_t values = (size_t)now->value_count * sizeof(*now->value),
	       readers = (size_t)now->value_reader_count * sizeof(*now->value_reader);

	if (now->value_count == then->value_count && now->value_reader_count == then->value_reader_count &&
	        (!values || !memcmp(now->value, then->value, values)) &&
	        (!readers || !memcmp(now->value_reader, then->value_reader, readers)))
		return 1;
	str_add(out, "other values that layers share");
	return 0;
}

int model_compare(struct str *out, const struct model_config *now, const struct model_config *then)
{
	int equal = fields_equal(out, model_fields, sizeof(model_fields) / sizeof(*model_fields), now, then);

	for (int role = 0; role < ROLE_COUNT && equal; role++)
		equal = fields_equal(out, norm_fields, sizeof(norm_fields) / sizeof(*norm_fields),
		        &now->norm_of[role], &then->norm_of[role]);
	for (int r = 0; r < now->rope_count && equal; r++)
		equal = ropes_equal(out, &now->rope[r], &then->rope[r]);
	for (int64_t l = 0; l < now->L && equal; l++) {
		equal = fields_equal(out, block_fields, sizeof(block_fields) / sizeof(*block_fields),
		                &now->block[l], &then->block[l]) &&
		        stages_equal(out, &now->block[l], &then->block[l]);
		if (!equal)
			str_printf(out, " in layer %" PRId64, l);
	}
	return equal && poolings_equal(out, &now->pooling, &then->pooling) && values_equal(out, now, then);
}
