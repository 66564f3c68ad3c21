/* Falcon-H1: attention and Mamba-2 side by side in each layer, then an MLP; numbers multiply their parts. */
#include "model/families/families.h"

#include "base/err.h"

#include <inttypes.h>
#include <math.h>

static const struct family_tensor falcon_h1_tensors[] = {
        LLAMA_EMBED,
        TENSOR(GATE_W, "feed_forward.gate_proj.weight"),
        TENSOR_IF(GATE_B, "feed_forward.gate_proj.bias", "mlp_bias", 0),
        TENSOR(UP_W, "feed_forward.up_proj.weight"),
        TENSOR_IF(UP_B, "feed_forward.up_proj.bias", "mlp_bias", 0),
        TENSOR(DOWN_W, "feed_forward.down_proj.weight"),
        TENSOR_IF(DOWN_B, "feed_forward.down_proj.bias", "mlp_bias", 0),
        MAMBA2("mamba", "mamba_conv_bias", 1, "mamba_proj_bias", "projectors_bias"),
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        TENSOR(NORM1_W, "input_layernorm.weight"),
        TENSOR(NORM2_W, "pre_ff_layernorm.weight"),
        TENSOR(FINAL_NORM_W, "final_layernorm.weight"),
        TENSOR(HEAD_W, "lm_head.weight"),
        TENSORS_END,
};

/* The numbers of a list, all of which multiply something. */
static void read_list(struct config_reader *r, const char *key, double *const *out, size_t count)
{
	json_t *list = NULL;
	int found = r->err ? r->err : json_get_array(r->object, r->where, key, &list);

	if (found < 0)
		r->err = found;
	if (r->err || !found)
		return;
	if (json_array_size(list) != count)
		config_fail(r, ERR_INPUT, "%s has %zu numbers; it must have %zu", key, json_array_size(list),
		        count);
	for (size_t i = 0; i < count && !r->err; i++) {
		const json_t *number = json_array_get(list, i);

		if (!json_is_number(number))
			config_fail(r, ERR_INPUT, "%s must be a list of numbers", key);
		*out[i] = json_number_value(number);
		config_check_positive(r, key, *out[i]);
	}
}

static void read_scales(struct config_reader *r, struct model_config *c, struct block_scales *s)
{
	double *const mlp[] = {&s->gate, &s->down};
	double *const scan[] = {&s->scan[0], &s->scan[1], &s->scan[2], &s->scan[3], &s->scan[4]};
	double key = 1, head = 1;
	double *const all[] = {&s->attention_in, &s->attention_out, &s->scan_in, &s->scan_out, &s->gate,
	        &s->down, &s->scan[0], &s->scan[1], &s->scan[2], &s->scan[3], &s->scan[4]};

	config_read_multiplier(r, "attention_in_multiplier", &s->attention_in);
	config_read_multiplier(r, "attention_out_multiplier", &s->attention_out);
	config_read_multiplier(r, "ssm_in_multiplier", &s->scan_in);
	config_read_multiplier(r, "ssm_out_multiplier", &s->scan_out);
	read_list(r, "mlp_multipliers", mlp, 2);
	read_list(r, "ssm_multipliers", scan, SCAN_PARTS);
	config_read_multiplier(r, "embedding_multiplier", &c->embed_scale);
	config_read_multiplier(r, "key_multiplier", &key);
	config_read_multiplier(r, "lm_head_multiplier", &head);
	if (!r->err)
		config_check_positive(r, "one over lm_head_multiplier", 1 / head);
	c->attention_scale = key / sqrt((double)c->D); /* rotation is linear */
	c->logit_divisor = 1 / head;
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		*all[i] = *all[i] == 1 ? 0 : *all[i];
}

static void read_scan(struct config_reader *r, const struct model_config *c, struct block_config *b)
{
	static const struct scan_keys keys = {.heads = "mamba_n_heads",
	        .head_dim = "mamba_d_head",
	        .groups = "mamba_n_groups",
	        .states = "mamba_d_state",
	        .taps = "mamba_d_conv",
	        .act = "hidden_act"};
	int64_t expand = 2, columns = 1024, heads = 128;

	config_read_size(r, "mamba_expand", &expand);
	if (config_is_null(r, "mamba_d_ssm"))
		columns = expand * c->C;
	config_read_size(r, "mamba_d_ssm", &columns);
	config_read_size(r, "mamba_n_heads", &heads);
	b->taps = 4;
	b->scan = (struct scan_config){0, INFINITY, 1};
	b->delta = (struct delta_config){1, heads, 256, columns / heads};
	config_read_scan(r, b, &keys);
	config_read_step_limit(r, b);
	config_read_flag(r, "mamba_norm_before_gate", &b->scan.norm_first);
	if (!r->err && b->delta.value_heads * b->delta.value_dim != columns)
		config_fail(r, ERR_INPUT,
		        "mamba_n_heads %" PRId64 " times mamba_d_head %" PRId64 " is not %s %" PRId64,
		        b->delta.value_heads, b->delta.value_dim,
		        config_is_null(r, "mamba_d_ssm") ? "mamba_expand times hidden_size," : "mamba_d_ssm",
		        columns);
}

static void falcon_h1_read(struct config_reader *r, struct model_config *c)
{
	struct block_config scan = {0};
	int has_norm = 0;

	read_scan(r, c, &scan);
	read_scales(r, c, &scan.scales);
	config_read_flag(r, "mamba_rms_norm", &has_norm);
	config_set_has(c, ROLE_SCAN_NORM_W, has_norm);
	for (int64_t l = 0; l < c->L && !r->err; l++) {
		c->block[l].delta = scan.delta;
		c->block[l].scan = scan.scan;
		c->block[l].taps = scan.taps;
		c->block[l].scales = scan.scales;
	}
}

const struct model_family family_falcon_h1 = {
        .model_type = "falcon_h1",
        .peft_refuses = "out_proj",
        .base_class = "FalconH1Model",
        .causal_class = "FalconH1ForCausalLM",
        .tensors = falcon_h1_tensors,
        .defaults = {.V = 128000,
                .C = 4096,
                .F = 14336,
                .L = 32,
                .H = 32,
                .KV = 8,
                .max_positions = 8192,
                .norm_epsilon = 1e-5,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = 0},
        .read = falcon_h1_read,
};
