/* Reads what a config.json says of Mamba-2's layers. */
#include "model/config.h"

#include "base/err.h"
#include "device/op_recurrent.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void check_act(struct config_reader *r, const char *key)
{
	const char *act = NULL;

	config_read_str(r, key, &act);
	if (act && strcmp(act, "silu"))
		config_fail(r, ERR_UNSUPPORTED, "%s: layers of Mamba-2 need silu", key);
}

void config_read_scan(struct config_reader *r, struct block_config *b, const struct scan_keys *keys)
{
	struct delta_config *d = &b->delta;
	const char *head_dim = json_string_value(json_object_get(r->object, keys->head_dim));

	config_read_size(r, keys->heads, &d->value_heads);
	if (!head_dim || strcmp(head_dim, "auto")) /* what *b has */
		config_read_size(r, keys->head_dim, &d->value_dim);
	config_read_size(r, keys->groups, &d->key_heads);
	config_read_size(r, keys->states, &d->key_dim);
	config_read_int(r, keys->taps, &b->taps, 2, CONV_TAPS_MAX);
	check_act(r, keys->act);
	if (!r->err && d->value_heads % d->key_heads)
		config_fail(r, ERR_INPUT, "%s %" PRId64 " is not a multiple of %s %" PRId64, keys->heads,
		        d->value_heads, keys->groups, d->key_heads);
	if (!r->err && scan_in_cols(d) > CONFIG_SIZE_MAX)
		config_fail(r, ERR_INPUT, "%" PRId64 " heads of %" PRId64 " exceed what ferry supports",
		        d->value_heads, d->value_dim);
}

/* 0: it is no number. */
static int number_of(double *out, const json_t *value)
{
	const char *name = json_string_value(json_object_get(value, "__float__"));

	if (name && !strcmp(name, "Infinity"))
		*out = INFINITY;
	else if (json_is_number(value))
		*out = json_number_value(value);
	else
		return 0;
	return 1;
}

void config_read_step_limit(struct config_reader *r, struct block_config *b)
{
	const json_t *limit = json_object_get(r->object, "time_step_limit");

	if (r->err || !limit || json_is_null(limit))
		return;
	if (!json_is_array(limit) || json_array_size(limit) != 2 ||
	        !number_of(&b->scan.step_low, json_array_get(limit, 0)) ||
	        !number_of(&b->scan.step_high, json_array_get(limit, 1)))
		config_fail(r, ERR_INPUT, "time_step_limit must be a list of two numbers");
	else if (!(b->scan.step_low >= 0 && b->scan.step_low <= b->scan.step_high))
		config_fail(r, ERR_INPUT, "time_step_limit is [%g, %g]; it must be 0 <= low <= high",
		        b->scan.step_low, b->scan.step_high);
}
