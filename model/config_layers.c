/* Reads what the layers of a config.json are, for families whose layers differ. */
#include "model/config.h"

#include "base/err.h"
#include "base/str.h"
#include "device/op_recurrent.h"

#include <inttypes.h>
#include <string.h>

/* The number of a name in the list, -1: it is not there. */
static int kind_of(const char *const *names, const char *name)
{
	for (int i = 0; names[i]; i++)
		if (!strcmp(names[i], name))
			return i;
	return -1;
}

static void fail_kind(struct config_reader *r, int64_t layer, const char *name, const char *const *names)
{
	struct str list = {0};

	for (int i = 0; names[i]; i++)
		str_printf(&list, "%s%s", i ? ", " : "", names[i]);
	config_fail(r, ERR_UNSUPPORTED, "layer_types[%" PRId64 "] is %.60s; supported: %s", layer,
	        name ? name : "no string", list.data ? list.data : "");
	str_free(&list);
}

int config_read_layer_types(
        struct config_reader *r, const struct model_config *c, const char *const *names, int *kinds)
{
	json_t *types = NULL;
	int found;

	if (r->err)
		return 0;
	found = json_get_array(r->object, r->where, "layer_types", &types);
	if (found < 0)
		r->err = found;
	else if (found && (int64_t)json_array_size(types) != c->L)
		config_fail(r, ERR_INPUT, "layer_types has %zu entries; there are %" PRId64 " layers",
		        json_array_size(types), c->L);
	for (int64_t l = 0; l < c->L && found > 0 && !r->err; l++) {
		const char *name = json_string_value(json_array_get(types, (size_t)l));

		kinds[l] = name ? kind_of(names, name) : -1;
		if (kinds[l] < 0)
			fail_kind(r, l, name, names);
	}
	return found > 0;
}

void config_drop_stage(struct block_config *b, enum stage_kind kind)
{
	for (int role = 0; role < ROLE_COUNT; role++) {
		const struct role_facts *facts = &role_facts[role];
		int is_around = facts->part == MODEL_PART_NORMS && facts->out == DIM_HIDDEN;

		if (facts->scope == SCOPE_BLOCK && facts->stage == kind && !is_around)
			b->has[role] = 0;
	}
}

void config_read_delta(struct config_reader *r, struct block_config *b)
{
	struct delta_config *d = &b->delta;

	*d = (struct delta_config){.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128};
	b->taps = 4;
	config_read_size(r, "linear_num_key_heads", &d->key_heads);
	config_read_size(r, "linear_num_value_heads", &d->value_heads);
	config_read_size(r, "linear_key_head_dim", &d->key_dim);
	config_read_size(r, "linear_value_head_dim", &d->value_dim);
	config_read_int(r, "linear_conv_kernel_dim", &b->taps, 2, CONV_TAPS_MAX);
	if (!r->err && d->value_heads % d->key_heads)
		config_fail(r, ERR_INPUT,
		        "linear_num_value_heads %" PRId64
		        " is not a multiple of linear_num_key_heads %" PRId64,
		        d->value_heads, d->key_heads);
	if (!r->err && delta_qkv_cols(d) > CONFIG_SIZE_MAX)
		config_fail(r, ERR_INPUT,
		        "%" PRId64 " and %" PRId64 " heads of linear attention exceed what ferry supports",
		        d->key_heads, d->value_heads);
}

void config_read_clip(struct config_reader *r, struct model_config *c)
{
	double clip = 0;

	if (!config_has(r, "clip_qkv"))
		return;
	config_read_num(r, "clip_qkv", &clip);
	if (!r->err)
		config_check_positive(r, "clip_qkv", clip);
	for (int64_t l = 0; l < c->L && !r->err; l++)
		c->block[l].clip = clip;
}
