/* SmolLM3: Llama without rotary positions in every fourth block. */
#include "model/families/families.h"

#include "base/err.h"

#include <inttypes.h>

static const struct family_tensor smollm3_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_MLP_BIASED("mlp_bias", 0),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

/* no_rope_layers has a 1 for each block with rotary positions. If it is absent, every
 * no_rope_layer_interval-th block has none. A block without rotary positions may have a window. */
static void smollm3_read(struct config_reader *r, struct model_config *c)
{
	int64_t interval = 4, window = 0;
	json_t *list = NULL, *types = NULL;
	int is_sliding = 0, found;

	config_read_int(r, "no_rope_layer_interval", &interval, 1, INT32_MAX);
	config_read_flag(r, "use_sliding_window", &is_sliding);
	config_read_int(r, "sliding_window", &window, is_sliding ? 1 : INT32_MIN, INT32_MAX);
	found = r->err ? r->err : json_get_array(r->object, r->where, "no_rope_layers", &list);
	if (found >= 0)
		found = json_get_array(r->object, r->where, "layer_types", &types);
	if (found < 0)
		r->err = found;
	else if (list && (int64_t)json_array_size(list) != c->L)
		config_fail(r, ERR_INPUT, "no_rope_layers has %zu entries; there are %" PRId64 " layers",
		        json_array_size(list), c->L);
	for (int64_t l = 0; l < c->L && !r->err; l++) {
		const json_t *turns = list ? json_array_get(list, (size_t)l) : NULL;

		if (turns && !json_is_integer(turns))
			config_fail(r, ERR_INPUT, "no_rope_layers[%" PRId64 "] must be 0 or 1", l);
		else if (turns ? !json_integer_value(turns) : (l + 1) % interval == 0)
			c->block[l].rope = -1;
		if (is_sliding && c->block[l].rope < 0)
			c->block[l].window = window;
	}
	if (types && is_sliding && !r->err)
		config_read_layer_windows(r, c, &(struct family_window){.read = 1}, window, 0);
}

const struct model_family family_smollm3 = {
        .model_type = "smollm3",
        .base_class = "SmolLM3Model",
        .causal_class = "SmolLM3ForCausalLM",
        .tensors = smollm3_tensors,
        .defaults = {.V = 128256,
                .C = 2048,
                .F = 11008,
                .L = 36,
                .H = 16,
                .KV = 4,
                .max_positions = 32768,
                .norm_epsilon = 1e-6,
                .tied = 1,
                .eos_ids = {128001},
                .eos_count = 1,
                .bos_id = 128000,
                .pad_id = 128004},
        .rope = {.theta_otherwise = 2000000},
        .read = smollm3_read,
};
