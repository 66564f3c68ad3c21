/* Muse Glimmer, its text part: Gemma 2's norms around attention and MLP, norms without weight of the
 * embedding, q and k, a gate behind attention, and blocks without positions that see everything. */
#include "model/families/families.h"

#include "base/err.h"

#include <inttypes.h>
#include <math.h>

/* The embedding's norm and those of q and k stand here for their place: they have no tensors. */
static const struct family_tensor muse_tensors[] = {
        LLAMA_EMBED,
        TENSOR(EMBED_NORM_W, "embed_norm.weight"),
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        TENSOR(ATTN_GATE_W, "self_attn.gate_proj.weight"),
        LLAMA_HEAD_NORMS,
        LLAMA_MLP,
        GEMMA_NORMS,
        LLAMA_NORM_HEAD,
};

/* Every fourth block, counted from the last, sees everything and has no positions. */
static int is_full(const struct model_config *c, int64_t layer)
{
	return (c->L - 1 - layer) % 4 == 0;
}

/* What absent lists mean. Of layer_rope_theta only a 0 counts, which switches rotation off; theta itself is
 * that of rope_parameters. */
static void read_layers(struct config_reader *r, struct model_config *c)
{
	json_t *list = NULL;
	int found = r->err ? r->err : json_get_array(r->object, r->where, "layer_rope_theta", &list);

	if (found < 0)
		r->err = found;
	else if (found && (int64_t)json_array_size(list) != c->L)
		config_fail(r, ERR_INPUT, "layer_rope_theta has %zu entries; there are %" PRId64 " layers",
		        json_array_size(list), c->L);
	for (int64_t l = 0; l < c->L && !r->err; l++) {
		const json_t *theta = list ? json_array_get(list, (size_t)l) : NULL;

		if (is_full(c, l) && !config_has(r, "layer_types"))
			c->block[l].window = 0;
		if (theta && !json_is_number(theta))
			config_fail(r, ERR_INPUT, "layer_rope_theta[%" PRId64 "] is not a number", l);
		else if (theta ? json_number_value(theta) == 0 : is_full(c, l))
			c->block[l].rope = -1;
	}
}

static void muse_read(struct config_reader *r, struct model_config *c)
{
	static const enum tensor_role plain[] = {ROLE_EMBED_NORM_W, ROLE_Q_NORM_W, ROLE_K_NORM_W},
	                              post[] = {ROLE_POST_NORM1_W, ROLE_POST_NORM2_W};
	double post_epsilon = 1e-8, qk_scale = 3.87, output = 0.19611613513818404;

	config_read_num(r, "post_norm_eps", &post_epsilon);
	config_check_epsilon(r, "post_norm_eps", post_epsilon);
	config_read_num(r, "qk_scale_factor", &qk_scale);
	config_read_num(r, "output_multiplier", &output);
	config_read_num(r, "final_logit_softcapping", &c->logit_cap);
	if (!r->err) {
		config_check_positive(r, "qk_scale_factor", qk_scale);
		config_check_positive(r, "output_multiplier", output);
		config_check_positive(r, "one over output_multiplier", 1 / output);
		config_check_positive(r, "final_logit_softcapping", c->logit_cap);
	}
	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
		c->norm_of[plain[i]].is_plain = 1;
	for (size_t i = 0; i < sizeof(post) / sizeof(*post); i++)
		c->norm_of[post[i]].epsilon = post_epsilon;
	c->norm_of[ROLE_FINAL_NORM_W].weight_offset = 0;
	c->attention_scale = qk_scale / sqrt((double)c->D);
	c->logit_divisor = 1 / output;
	read_layers(r, c);
}

const struct model_family family_muse_glimmer_text = {
        .model_type = "muse_glimmer_text",
        .base_class = "MuseGlimmerTextModel",
        .causal_class = "MuseGlimmerForConditionalGeneration",
        .tensors = muse_tensors,
        .defaults = {.V = 202048,
                .C = 6656,
                .F = 19968,
                .L = 52,
                .H = 32,
                .KV = 2,
                .D = 128,
                .max_positions = 131072,
                .norm_epsilon = 1e-5,
                .norm_weight_offset = 1,
                .logit_cap = 20,
                .eos_ids = {200001},
                .eos_count = 1,
                .bos_id = 200000,
                .pad_id = -1},
        .keys = {.act = "hidden_activation"},
        .window = {.read = 1, .needed = 1, .otherwise = 2048},
        .whole_heads = 1,
        .only_whole = 1,
        .read = muse_read,
};
