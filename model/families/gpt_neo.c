/* GPT-Neo, TinyStories: GPT-2 with separate q, k, v, windows in some blocks, and scores that are not scaled.
 */
#include "model/families/families.h"

#include "base/err.h"

#include <inttypes.h>
#include <string.h>

static const struct family_tensor gpt_neo_tensors[] = {
        GPT2_EMBED,
        GPT2_NORM1,
        TENSOR(K_W, "attn.attention.k_proj.weight"),
        TENSOR(V_W, "attn.attention.v_proj.weight"),
        TENSOR(Q_W, "attn.attention.q_proj.weight"),
        TENSOR(O_W, "attn.attention.out_proj.weight"),
        TENSOR(O_B, "attn.attention.out_proj.bias"),
        GPT2_NORM2_MLP,
        GPT2_NORM_HEAD,
        TENSORS_END,
};

static const char *const gpt_neo_buffers[] = {"attn.attention.bias", "attn.attention.masked_bias", NULL};

/* Sets the window of block *layer, if there is such a block, and counts it. */
static void set_window(
        struct config_reader *r, struct model_config *c, int64_t *layer, const json_t *type, int64_t window)
{
	const char *name = json_string_value(type);

	if (!name || (strcmp(name, "global") && strcmp(name, "local")))
		config_fail(r, ERR_INPUT,
		        "block %" PRId64 " attends by %.40s; GPT-Neo knows global and local", *layer,
		        name ? name : "no string");
	else if (*layer < c->L)
		c->block[*layer].window = strcmp(name, "local") ? 0 : window;
	++*layer;
}

/* attention_types lists pairs of a pattern and how often it is repeated. */
static void read_types(struct config_reader *r, struct model_config *c, const json_t *types, int64_t window)
{
	int64_t layer = 0;

	for (size_t i = 0; i < json_array_size(types) && !r->err; i++) {
		const json_t *pair = json_array_get(types, i), *pattern = json_array_get(pair, 0);
		const json_t *count = json_array_get(pair, 1);
		json_int_t left = json_integer_value(count);

		if (!json_is_array(pattern) || !json_array_size(pattern) || !json_is_integer(count) ||
		        json_array_size(pair) != 2)
			config_fail(
			        r, ERR_INPUT, "attention_types[%zu] must be a list of types and a count", i);
		for (; left > 0 && layer <= c->L && !r->err; left--)
			for (size_t j = 0; j < json_array_size(pattern) && !r->err; j++)
				set_window(r, c, &layer, json_array_get(pattern, j), window);
	}
	if (layer != c->L)
		config_fail(r, ERR_INPUT,
		        "attention_types describes %s%" PRId64 " blocks; there are %" PRId64,
		        layer > c->L ? "at least " : "", layer, c->L);
}

/* Without a list, blocks 1, 3, ... of 24 have a window. */
static void usual_windows(struct config_reader *r, struct model_config *c, int64_t window)
{
	if (c->L != 24)
		config_fail(r, ERR_INPUT,
		        "attention_types is missing; its default is for 24 layers, not %" PRId64, c->L);
	for (int64_t l = 0; l < c->L; l++)
		c->block[l].window = l % 2 ? window : 0;
}

/* attention_layers has one entry for each block. transformers prefers it to attention_types. */
static void gpt_neo_read(struct config_reader *r, struct model_config *c)
{
	json_t *types = NULL, *layers = NULL;
	int64_t window = 256, layer = 0;
	int found;

	c->attention_scale = 1;
	config_read_int(r, "window_size", &window, 1, INT32_MAX);
	found = r->err ? r->err : json_get_array(r->object, r->where, "attention_types", &types);
	if (found >= 0)
		found = json_get_array(r->object, r->where, "attention_layers", &layers);
	if (found < 0)
		r->err = found;
	else if (layers && (int64_t)json_array_size(layers) != c->L)
		config_fail(r, ERR_INPUT, "attention_layers has %zu entries; there are %" PRId64 " layers",
		        json_array_size(layers), c->L);
	else if (layers)
		while (layer < c->L && !r->err)
			set_window(r, c, &layer, json_array_get(layers, (size_t)layer), window);
	else if (types)
		read_types(r, c, types, window);
	else
		usual_windows(r, c, window);
}

const struct model_family family_gpt_neo = {
        .model_type = "gpt_neo",
        .prefix = "transformer.",
        .blocks = "h",
        .base_class = "GPTNeoModel",
        .causal_class = "GPTNeoForCausalLM",
        .tensors = gpt_neo_tensors,
        .buffers = gpt_neo_buffers,
        .defaults = {.V = 50257,
                .C = 2048,
                .L = 24,
                .H = 16,
                .max_positions = 2048,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .act = ACT_GELU_TANH,
                .tied = 1,
                .eos_ids = {50256},
                .eos_count = 1,
                .bos_id = 50256,
                .pad_id = -1},
        .keys = {.layers = "num_layers",
                .heads = "num_heads",
                .act = "activation_function",
                .epsilon = "layer_norm_epsilon"},
        .whole_heads = 1,
        .one_size_of_heads = 1,
        .pads_nothing = 1,
        .read = gpt_neo_read,
};
