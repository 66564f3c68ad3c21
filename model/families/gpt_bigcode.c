/* StarCoder 1, SantaCoder: GPT-2 with one head of keys and values, matrices stored [out, in]. */
#include "model/families/families.h"

static const char *const gpt_bigcode_buffers[] = {"attn.bias", "attn.masked_bias", "transformer.bias", NULL};

/* With multi_query=false there is a head of keys and values for each of queries, and they are fused by head.
 */
static void gpt_bigcode_read(struct config_reader *r, struct model_config *c)
{
	int is_shared = 1;

	gpt2_read_scale(r, c);
	config_read_flag(r, "multi_query", &is_shared);
	c->KV = is_shared ? 1 : c->H;
	c->qkv_by_head = !is_shared;
}

const struct model_family family_gpt_bigcode = {
        .model_type = "gpt_bigcode",
        .prefix = "transformer.",
        .blocks = "h",
        .base_class = "GPTBigCodeModel",
        .causal_class = "GPTBigCodeForCausalLM",
        .tensors = gpt2_tensors,
        .buffers = gpt_bigcode_buffers,
        .defaults = {GPT2_DEFAULTS},
        .keys = {GPT2_KEYS},
        .whole_heads = 1,
        .one_size_of_heads = 1,
        .pads_nothing = 1,
        .read = gpt_bigcode_read,
};
