/* LFM2: short convolutions with gates in most blocks, attention with norms of q and k in the others. */
#include "model/families/families.h"

#include "base/err.h"

#include <inttypes.h>
#include <string.h>

static const struct family_tensor lfm2_tensors[] = {
        LLAMA_EMBED,
        TENSOR(Q_W, "self_attn.q_proj.weight"),
        TENSOR(K_W, "self_attn.k_proj.weight"),
        TENSOR(V_W, "self_attn.v_proj.weight"),
        TENSOR(O_W, "self_attn.out_proj.weight"),
        TENSOR(Q_NORM_W, "self_attn.q_layernorm.weight"),
        TENSOR(K_NORM_W, "self_attn.k_layernorm.weight"),
        TENSOR(CONV_FILTER_W, "conv.conv.weight"),
        TENSOR_IF(CONV_FILTER_B, "conv.conv.bias", "conv_bias", 0),
        TENSOR(CONV_IN_W, "conv.in_proj.weight"),
        TENSOR_IF(CONV_IN_B, "conv.in_proj.bias", "conv_bias", 0),
        TENSOR(CONV_OUT_W, "conv.out_proj.weight"),
        TENSOR_IF(CONV_OUT_B, "conv.out_proj.bias", "conv_bias", 0),
        TENSOR(GATE_W, "feed_forward.w1.weight"),
        TENSOR(UP_W, "feed_forward.w3.weight"),
        TENSOR(DOWN_W, "feed_forward.w2.weight"),
        TENSOR(NORM1_W, "operator_norm.weight"),
        TENSOR(NORM2_W, "ffn_norm.weight"),
        TENSOR(FINAL_NORM_W, "embedding_norm.weight"),
        TENSOR(HEAD_W, "lm_head.weight"),
        TENSORS_END,
};

/* The block has attention or a convolution, not the other one's tensors. */
static void set_kind(struct block_config *b, int is_conv)
{
	for (int role = 0; role < ROLE_COUNT; role++)
		if (is_conv ? role_facts[role].stage == STAGE_ATTN && role != ROLE_NORM1_W
		            : role_facts[role].stage == STAGE_CONV)
			b->has[role] = 0;
}

/* layer_types or, in older files, the indices of blocks with attention. Without both, all have it. */
static void read_kinds(struct config_reader *r, struct model_config *c)
{
	json_t *types = NULL, *indices = NULL;
	int found = r->err ? r->err : json_get_array(r->object, r->where, "layer_types", &types);

	if (found >= 0 && !types)
		found = json_get_array(r->object, r->where, "full_attn_idxs", &indices);
	if (found < 0)
		r->err = found;
	else if (types && (int64_t)json_array_size(types) != c->L)
		config_fail(r, ERR_INPUT, "layer_types has %zu entries; there are %" PRId64 " layers",
		        json_array_size(types), c->L);
	for (int64_t l = 0; l < c->L && !r->err; l++) {
		const char *type = types ? json_string_value(json_array_get(types, (size_t)l)) : NULL;
		int is_conv = types ? type && !strcmp(type, "conv") : indices != NULL;

		for (size_t i = 0; i < json_array_size(indices); i++)
			is_conv &= json_integer_value(json_array_get(indices, i)) != l;
		if (types && !is_conv && (!type || strcmp(type, "full_attention")))
			config_fail(r, ERR_UNSUPPORTED,
			        "layer_types[%" PRId64
			        "] is %.60s; only conv and full_attention are supported",
			        l, type ? type : "no string");
		set_kind(&c->block[l], is_conv);
	}
	for (size_t i = 0; i < json_array_size(indices); i++)
		if (!json_is_integer(json_array_get(indices, i)))
			config_fail(r, ERR_INPUT, "full_attn_idxs[%zu] is not a number of a layer", i);
}

/* The MLP is narrower than the file says: two thirds, times a factor, up to a multiple. */
static void read_inner(struct config_reader *r, struct model_config *c)
{
	int64_t multiple = 256;
	double factor = 1;
	int adjusts = 1;

	config_read_size(r, "block_ff_dim", &c->F);
	config_read_flag(r, "block_auto_adjust_ff_dim", &adjusts);
	config_read_size(r, "block_multiple_of", &multiple);
	config_read_num(r, "block_ffn_dim_multiplier", &factor);
	if (r->err || !adjusts)
		return;
	config_check_positive(r, "block_ffn_dim_multiplier", factor);
	c->F = 2 * c->F / 3;
	if (config_is_null(r, "block_ffn_dim_multiplier") || r->err)
		return;
	factor *= (double)c->F;
	if (!(factor < CONFIG_SIZE_MAX)) {
		config_fail(r, ERR_INPUT, "block_ffn_dim_multiplier makes the MLP too wide");
		return;
	}
	c->F = ((int64_t)factor + multiple - 1) / multiple * multiple;
}

static void lfm2_read(struct config_reader *r, struct model_config *c)
{
	int64_t taps = 3;

	config_read_int(r, "conv_L_cache", &taps, 1, BLOCK_TAPS_MAX);
	config_read_flag(r, "tie_embedding", &c->tied);
	for (int64_t l = 0; l < c->L; l++)
		c->block[l].taps = taps;
	read_inner(r, c);
	if (!r->err && (c->F < 1 || c->F > CONFIG_SIZE_MAX))
		config_fail(r, ERR_INPUT, "the MLP would be %" PRId64 " wide", c->F);
	read_kinds(r, c);
}

const struct model_family family_lfm2 = {
        .model_type = "lfm2",
        .base_class = "Lfm2Model",
        .causal_class = "Lfm2ForCausalLM",
        .tensors = lfm2_tensors,
        .defaults = {.V = 65536,
                .C = 2560,
                .F = 12288,
                .L = 32,
                .H = 32,
                .KV = 8,
                .max_positions = 128000,
                .norm_epsilon = 1e-5,
                .tied = 1,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = 0},
        .keys = {.epsilon = "norm_eps", .act = FAMILY_NO_KEY},
        .rope = {.theta_otherwise = 1e6},
        .read = lfm2_read,
};
