/* Reads what a config.json says of experts: how many, how a router chooses, and which layers have them. */
#include "model/config.h"

#include "base/err.h"
#include "base/mem.h"
#include "device/op_experts.h"

#include <inttypes.h>

#define CONFIG_BALANCE_MAX 1e6

/* The count by either key; both may be there if they agree. */
static void read_count(struct config_reader *r, int64_t *count, const char *const keys[2])
{
	int64_t each[2] = {*count, *count};

	for (int i = 0; i < 2 && keys[i]; i++)
		config_read_int(r, keys[i], &each[i], 0, ROUTE_EXPERTS_MAX);
	if (!r->err && keys[1] && config_has(r, keys[0]) && config_has(r, keys[1]) && each[0] != each[1])
		config_fail(r, ERR_INPUT, "%s is %" PRId64 " and %s is %" PRId64 "; they must be equal",
		        keys[0], each[0], keys[1], each[1]);
	*count = keys[1] && config_has(r, keys[1]) ? each[1] : each[0];
}

/* Experts in groups of equal size, from the best of which the choice is made. */
static void read_groups(struct config_reader *r, struct experts_config *e, const struct experts_keys *keys)
{
	config_read_num(r, "routed_scaling_factor", &e->scale);
	if (!r->err)
		config_check_positive(r, "routed_scaling_factor", e->scale);
	if (keys->is_ungrouped)
		return;
	config_read_int(r, "n_group", &e->groups, 1, ROUTE_EXPERTS_MAX);
	config_read_int(r, "topk_group", &e->groups_chosen, 1, ROUTE_EXPERTS_MAX);
	if (!r->err && e->count % e->groups)
		config_fail(r, ERR_INPUT, "%s %" PRId64 " is not a multiple of n_group %" PRId64,
		        keys->count[0], e->count, e->groups);
	if (!r->err && e->groups_chosen > e->groups)
		config_fail(r, ERR_INPUT, "topk_group is %" PRId64 ", but n_group is only %" PRId64,
		        e->groups_chosen, e->groups);
	if (!r->err && (e->groups > ROUTE_GROUPS_MAX || (e->groups > 1 && e->count / e->groups < 2)))
		config_fail(r, ERR_UNSUPPORTED,
		        "n_group is %" PRId64 ": at most %d groups of two experts or more are supported",
		        e->groups, ROUTE_GROUPS_MAX);
	if (!r->err && e->chosen > e->groups_chosen * (e->count / e->groups))
		config_fail(r, ERR_INPUT,
		        "%s is %" PRId64 ", but topk_group %" PRId64 " leaves only %" PRId64 " experts",
		        keys->chosen, e->chosen, e->groups_chosen, e->groups_chosen * (e->count / e->groups));
}

void config_read_experts(struct config_reader *r, struct experts_config *e, const struct experts_keys *keys)
{
	const char *count = keys->count[1] && config_has(r, keys->count[1]) ? keys->count[1] : keys->count[0];

	e->scale = e->scale != 0 ? e->scale : 1;
	e->groups = e->groups ? e->groups : 1;
	e->groups_chosen = e->groups_chosen ? e->groups_chosen : 1;
	read_count(r, &e->count, keys->count);
	config_read_int(r, keys->chosen, &e->chosen, 1, ROUTE_CHOSEN_MAX);
	config_read_size(r, keys->inner, &e->F);
	if (keys->normed)
		config_read_flag(r, keys->normed, &e->is_normed);
	if (!r->err && e->count && e->chosen > e->count)
		config_fail(r, ERR_INPUT, "%s is %" PRId64 ", but %s is only %" PRId64, keys->chosen,
		        e->chosen, count, e->count);
	if (!r->err && keys->is_grouped)
		read_groups(r, e, keys);
}

/* Plain training of transformers has this loss only where the flag is set. */
void config_read_balance(struct config_reader *r, struct model_config *c, double otherwise)
{
	c->balance_class = 1;
	c->balance_coef = otherwise;
	config_read_num(r, "router_aux_loss_coef", &c->balance_coef);
	if (!r->err && !(c->balance_coef >= 0 && c->balance_coef <= CONFIG_BALANCE_MAX))
		config_fail(r, ERR_INPUT, "router_aux_loss_coef is %g, must be 0 to %g", c->balance_coef,
		        CONFIG_BALANCE_MAX);
	config_read_flag(r, "output_router_logits", &c->balance_asked);
}

void config_set_sparse(struct block_config *b, const struct experts_config *e, int is_sparse)
{
	static const enum stage_kind dense[] = {STAGE_UP, STAGE_DOWN};

	if (!is_sparse) {
		config_drop_stage(b, STAGE_EXPERTS);
		return;
	}
	b->experts = *e;
	for (size_t i = 0; i < sizeof(dense) / sizeof(*dense); i++)
		config_drop_stage(b, dense[i]);
}

void config_set_all_sparse(struct config_reader *r, struct model_config *c, const struct experts_config *e)
{
	if (!e->count)
		config_fail(r, ERR_INPUT, "the number of experts is 0");
	for (int64_t l = 0; l < c->L && !r->err; l++)
		config_set_sparse(&c->block[l], e, 1);
}

/* Marks the layers in the list of a key. */
static void mark_listed(struct config_reader *r, uint8_t *marked, int64_t layers, const char *key)
{
	json_t *list = NULL;
	int found = r->err || !config_has(r, key) ? 0 : json_get_array(r->object, r->where, key, &list);

	if (found < 0)
		r->err = found;
	for (size_t i = 0; found > 0 && i < json_array_size(list); i++) {
		const json_t *item = json_array_get(list, i);
		json_int_t layer = json_integer_value(item);

		if (!json_is_integer(item))
			config_fail(r, ERR_INPUT, "%s[%zu] is not an integer", key, i);
		else if (layer >= 0 && layer < layers) /* transformers passes over others too */
			marked[layer] = 1;
	}
}

void config_read_sparse_layers(
        struct config_reader *r, struct model_config *c, const struct experts_config *e)
{
	uint8_t *is_dense = mem_alloc((size_t)c->L, 1);
	int64_t step = 1;

	if (!is_dense)
		config_fail(r, ERR_NOMEM, "not enough memory");
	config_read_int(r, "decoder_sparse_step", &step, 1, INT32_MAX);
	if (!r->err)
		mark_listed(r, is_dense, c->L, "mlp_only_layers");
	for (int64_t l = 0; l < c->L && !r->err; l++)
		config_set_sparse(&c->block[l], e, e->count && !is_dense[l] && (l + 1) % step == 0);
	mem_free(is_dense);
}
