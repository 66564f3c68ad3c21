/* Qwen3-Next: Qwen3.5's layers with experts. Its files weave the rows of q, k, v and z by heads of keys, and
 * those of b and a. */
#include "base/err.h"
#include "model/families/families.h"
#include "model/file_ranges.h"

#include <string.h>

static const struct family_tensor qwen3_next_tensors[] = {
        LLAMA_EMBED,
        QWEN_ATTENTION_OR_DELTA,
        QWEN_EXPERTS,
        QWEN_SHARED_EXPERT,
        LLAMA_MLP,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

static const char qkvz[] = "linear_attn.in_proj_qkvz.weight", ba[] = "linear_attn.in_proj_ba.weight";

static const struct family_woven woven[] = {{ROLE_DELTA_QKV_W, qkvz}, {ROLE_DELTA_Z_W, NULL},
        {ROLE_DELTA_B_W, ba}, {ROLE_DELTA_A_W, NULL}, {ROLE_COUNT, NULL}};

/* Rows of a tensor of the table: for head j those from first + j * each on. */
struct strand {
	const char *place;
	int64_t first, each;
};

static int find_strands(struct file_ranges *out, const struct model *model, const char *name,
        const char *inside, const struct strand *strands, int count, int64_t heads)
{
	int64_t rows = 0, cols = model->config.C;
	int err = 0;

	for (int64_t j = 0; j < heads && !err; j++)
		for (int i = 0; i < count && !err; i++) {
			const struct strand *s = &strands[i];
			int t = file_ranges_beside(model, name, inside, s->place);

			if (t < 0)
				return t == ERR_NOMEM ? t : 0;
			err = file_ranges_add(out, model, t, (s->first + j * s->each) * cols, s->each * cols);
			rows += s->each;
		}
	out->shape[0] = rows;
	return err;
}

static int find_woven(
        struct file_ranges *out, const struct model *model, const char *name, const char *inside)
{
	int first = file_ranges_beside(model, name, inside, "linear_attn.in_proj_qkv.weight");
	const struct delta_config *d;
	int64_t keys, values;

	if (first < 0)
		return first == ERR_NOMEM ? first : 0;
	d = &model->config.block[model->tensors[first].layer].delta;
	keys = d->key_dim;
	values = d->value_heads / d->key_heads * d->value_dim;
	if (!strcmp(inside, qkvz))
		return find_strands(out, model, name, inside,
		        (struct strand[]){{"linear_attn.in_proj_qkv.weight", 0, keys},
		                {"linear_attn.in_proj_qkv.weight", d->key_heads * keys, keys},
		                {"linear_attn.in_proj_qkv.weight", 2 * d->key_heads * keys, values},
		                {"linear_attn.in_proj_z.weight", 0, values}},
		        4, d->key_heads);
	if (!strcmp(inside, ba))
		return find_strands(out, model, name, inside,
		        (struct strand[]){{"linear_attn.in_proj_b.weight", 0, d->value_heads / d->key_heads},
		                {"linear_attn.in_proj_a.weight", 0, d->value_heads / d->key_heads}},
		        2, d->key_heads);
	return 0;
}

static void qwen3_next_read(struct config_reader *r, struct model_config *c)
{
	struct experts_config e = {.count = 512, .chosen = 10, .F = 512, .shared = 512, .is_normed = 1};

	qwen3_5_read(r, c);
	config_read_size(r, "shared_expert_intermediate_size", &e.shared);
	config_read_experts(r, &e, &experts_keys_qwen);
	config_read_balance(r, c, 0.001);
	config_read_sparse_layers(r, c, &e);
}

const struct model_family family_qwen3_next = {
        .model_type = "qwen3_next",
        .base_class = "Qwen3NextModel",
        .causal_class = "Qwen3NextForCausalLM",
        .tensors = qwen3_next_tensors,
        .splits = qwen_expert_splits,
        .woven = woven,
        .find_woven = find_woven,
        .defaults = {.V = 151936, .C = 2048, .F = 5632, .L = 48, .KV = 2, QWEN_DELTA_DEFAULTS},
        .rope = {.partial_otherwise = 0.25, .partial_in_default = 1},
        .read = qwen3_next_read,
};
