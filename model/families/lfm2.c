/* LFM2: short convolutions with gates in most blocks, attention with norms of q and k in the others. */
#include "model/families/families.h"

#include "base/err.h"
#include "base/mem.h"

#include <inttypes.h>

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

enum { LAYER_CONV, LAYER_ATTENTION };

/* Older files have the indices of blocks with attention. Without any list all have it. */
static void read_indices(struct config_reader *r, const struct model_config *c, int *kinds)
{
	json_t *indices = NULL;
	int found = r->err ? r->err : json_get_array(r->object, r->where, "full_attn_idxs", &indices);

	if (found < 0)
		r->err = found;
	for (int64_t l = 0; l < c->L; l++)
		kinds[l] = indices ? LAYER_CONV : LAYER_ATTENTION;
	for (size_t i = 0; i < json_array_size(indices) && !r->err; i++) {
		const json_t *index = json_array_get(indices, i);
		json_int_t layer = json_integer_value(index);

		if (!json_is_integer(index))
			config_fail(r, ERR_INPUT, "full_attn_idxs[%zu] is not the number of a layer", i);
		else if (layer >= 0 && layer < c->L)
			kinds[layer] = LAYER_ATTENTION;
	}
}

static void read_kinds(struct config_reader *r, struct model_config *c)
{
	static const char *const names[] = {"conv", "full_attention", NULL};
	int *kinds = mem_alloc((size_t)c->L, sizeof(*kinds));

	if (!kinds && !r->err)
		r->err = ERR_NOMEM;
	if (!r->err && !config_read_layer_types(r, c, names, kinds))
		read_indices(r, c, kinds);
	for (int64_t l = 0; l < c->L && !r->err; l++)
		config_drop_stage(&c->block[l], kinds[l] == LAYER_CONV ? STAGE_ATTN : STAGE_CONV);
	mem_free(kinds);
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
