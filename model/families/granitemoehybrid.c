/* Granite 4: Mamba-2 or attention in each layer, then experts and a shared MLP, or the MLP alone. */
#include "model/families/families.h"

#include "base/err.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct family_tensor granitemoehybrid_tensors[] = {
        LLAMA_EMBED,
        LLAMA_NORMS,
        TENSOR(ROUTER_W, "block_sparse_moe.router.layer.weight"),
        TENSOR(EXPERTS_GATE_UP_W, "block_sparse_moe.input_linear.weight"),
        TENSOR(EXPERTS_DOWN_W, "block_sparse_moe.output_linear.weight"),
        TENSOR(SHARED_GATE_UP_W, "shared_mlp.input_linear.weight"),
        TENSOR(SHARED_DOWN_W, "shared_mlp.output_linear.weight"),
        TENSOR(GATE_UP_W, "shared_mlp.input_linear.weight"),
        TENSOR(DOWN_W, "shared_mlp.output_linear.weight"),
        MAMBA2("mamba", "mamba_conv_bias", 1, "mamba_proj_bias", "mamba_proj_bias"),
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_NORM_HEAD,
};

static void read_scan(struct config_reader *r, const struct model_config *c, struct block_config *b)
{
	static const struct scan_keys keys = {.heads = "mamba_n_heads",
	        .head_dim = "mamba_d_head",
	        .groups = "mamba_n_groups",
	        .states = "mamba_d_state",
	        .taps = "mamba_d_conv",
	        .act = "hidden_act"};
	int64_t expand = 2, heads = 128;

	config_read_size(r, "mamba_expand", &expand);
	config_read_size(r, "mamba_n_heads", &heads);
	b->taps = 4;
	b->scan = (struct scan_config){0, INFINITY, 0};
	b->delta = (struct delta_config){1, heads, 256, expand * c->C / heads};
	config_read_scan(r, b, &keys);
	config_read_step_limit(r, b);
	if (!r->err && b->delta.value_heads * b->delta.value_dim != expand * c->C)
		config_fail(r, ERR_INPUT,
		        "mamba_n_heads %" PRId64 " times mamba_d_head %" PRId64
		        " is not mamba_expand %" PRId64 " times hidden_size %" PRId64,
		        b->delta.value_heads, b->delta.value_dim, expand, c->C);
}

static void read_layers(struct config_reader *r, struct model_config *c)
{
	static const char *const names[] = {"mamba", "attention", "linear_attention", "full_attention", NULL};
	int *kinds = mem_alloc((size_t)c->L, sizeof(*kinds));
	struct block_config scan = {0};

	if (!kinds && !r->err)
		r->err = ERR_NOMEM;
	read_scan(r, c, &scan);
	if (!r->err)
		config_read_layer_types(r, c, names, kinds); /* absent: Mamba-2 everywhere */
	for (int64_t l = 0; l < c->L && !r->err; l++) {
		struct block_config *b = &c->block[l];

		config_drop_stage(b, kinds[l] % 2 ? STAGE_SCAN : STAGE_ATTN);
		if (kinds[l] % 2)
			continue;
		b->delta = scan.delta;
		b->scan = scan.scan;
		b->taps = scan.taps;
	}
	mem_free(kinds);
}

static void read_experts(struct config_reader *r, struct model_config *c)
{
	static const struct experts_keys keys = {.count = {"num_local_experts", NULL},
	        .chosen = "num_experts_per_tok",
	        .inner = "intermediate_size"};
	struct experts_config e = {
	        .count = 8, .chosen = 2, .F = c->F, .shared = 1024, .rule = ROUTE_CHOSEN, .is_normed = 1};

	config_read_size(r, "shared_intermediate_size", &e.shared);
	config_read_experts(r, &e, &keys);
	if (e.count > 0)
		config_read_balance(r, c, 0.001);
	for (int64_t l = 0; l < c->L && !r->err; l++) {
		c->block[l].F = e.shared;
		config_set_sparse(&c->block[l], &e, e.count > 0);
	}
}

static void granitemoehybrid_read(struct config_reader *r, struct model_config *c)
{
	const char *positions = NULL;

	config_read_str(r, "position_embedding_type", &positions);
	config_read_multiplier(r, "embedding_multiplier", &c->embed_scale);
	config_read_multiplier(r, "attention_multiplier", &c->attention_scale);
	config_read_multiplier(r, "residual_multiplier", &c->residual_scale);
	config_read_multiplier(r, "logits_scaling", &c->logit_divisor);
	read_layers(r, c);
	read_experts(r, c);
	for (int64_t l = 0; l < c->L && !(positions && !strcmp(positions, "rope")); l++)
		c->block[l].rope = -1;
}

static const struct family_alias granitemoehybrid_aliases[] = {{"layer_types", "layers_block_type"}, {0}};

static const struct family_rename granitemoehybrid_renames[] = {
        {".block_sparse_moe.input_linear.weight", ".block_sparse_moe.experts.gate_up_proj"},
        {".block_sparse_moe.output_linear.weight", ".block_sparse_moe.experts.down_proj"},
        {".block_sparse_moe.router.layer.", ".block_sparse_moe.router."}, {0}};

const struct model_family family_granitemoehybrid = {
        .model_type = "granitemoehybrid",
        .base_class = "GraniteMoeHybridModel",
        .causal_class = "GraniteMoeHybridForCausalLM",
        .tensors = granitemoehybrid_tensors,
        .renames = granitemoehybrid_renames,
        .defaults = {.V = 32000,
                .C = 4096,
                .F = 11008,
                .L = 32,
                .H = 32,
                .max_positions = 2048,
                .norm_epsilon = 1e-6,
                .eos_ids = {2},
                .eos_count = 1,
                .bos_id = 1,
                .pad_id = -1},
        .aliases = granitemoehybrid_aliases,
        .read = granitemoehybrid_read,
};
