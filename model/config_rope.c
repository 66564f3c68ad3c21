/* Reads rotary settings of a config.json in the old and the new spelling. */
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/config.h"
#include "model/family.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
	const char *name;
	enum rope_kind kind;
} kinds[] = {
        {"default", ROPE_DEFAULT},
        {"linear", ROPE_LINEAR},
        {"llama3", ROPE_LLAMA3},
        {"yarn", ROPE_YARN},
        {"longrope", ROPE_LONGROPE},
        {"proportional", ROPE_PROPORTIONAL},
};

/* The object with the settings: a rope_scaling that is not empty, else rope_parameters, else none (the top
 * level has them). */
static struct config_reader rope_object(struct config_reader *r, char *where, size_t where_bytes)
{
	static const char *const keys[] = {"rope_scaling", "rope_parameters"};

	for (size_t i = 0; i < 2 && !r->err; i++) {
		json_t *object = NULL;
		int found = json_get_object(r->object, r->where, keys[i], &object);

		if (found < 0)
			r->err = found;
		if (found > 0 && json_object_size(object)) {
			snprintf(where, where_bytes, "%s: %s", r->where, keys[i]);
			return (struct config_reader){.object = object, .where = where};
		}
	}
	return (struct config_reader){.where = r->where, .err = r->err};
}

/* Later families have one object for each kind of layer here. */
static void refuse_nested(struct config_reader *o)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)o->object, key, value)
	{
		if (json_is_object(value))
			config_fail(o, ERR_UNSUPPORTED,
			        "%.60s has its own settings; ferry supports one set for all layers", key);
	}
}

/* With a theta for more tokens, theta * alpha^(D / (D - 2)), "dynamic" is "default". */
static int has_alpha(struct config_reader *o, const struct model_config *c, struct rope_config *rope)
{
	double alpha = 0;

	config_read_num(o, "alpha", &alpha);
	if (o->err || alpha == 0)
		return 0;
	config_check_positive(o, "alpha", alpha);
	rope->theta *= pow(alpha, (double)c->D / (double)(c->D - 2));
	return 1;
}

static void read_kind(struct config_reader *o, const struct model_config *c, struct rope_config *rope,
        const struct family_rope *family)
{
	const char *name = "default";
	int found = json_get_str(o->object, o->where, "rope_type", &name);

	if (!found)
		found = json_get_str(o->object, o->where, "type", &name);
	if (found < 0) {
		o->err = found;
		return;
	}
	if (family->fixed_alpha && !strcmp(name, "dynamic") && has_alpha(o, c, rope))
		name = "default";
	if (!family->only_longrope && !strcmp(name, "dynamic")) {
		rope->is_bounded = 1;
		name = "default";
	}
	if (family->only_longrope && (!strcmp(name, "su") || !strcmp(name, "yarn")))
		name = "longrope"; /* as in transformers */
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(kinds[i].name, name) &&
		        (family->proportional || kinds[i].kind != ROPE_PROPORTIONAL)) {
			rope->kind = kinds[i].kind;
			if (family->only_longrope && rope->kind != ROPE_DEFAULT &&
			        rope->kind != ROPE_LONGROPE)
				config_fail(o, ERR_INPUT,
				        "rope type \"%s\" is not supported for this family; supported: "
				        "default, longrope",
				        name);
			return;
		}
	config_fail(o, ERR_UNSUPPORTED,
	        "rope type \"%.60s\" is not supported; supported: default, linear, dynamic, llama3, yarn, "
	        "longrope%s",
	        name, family->proportional ? ", proportional" : "");
}

static void require_positive(struct config_reader *o, const char *key, double *out)
{
	if (!o->err && !config_has(o, key))
		config_fail(o, ERR_INPUT, "%s is missing", key);
	config_read_num(o, key, out);
	if (!o->err)
		config_check_positive(o, key, *out);
}

/* 0 and null mean `otherwise`. */
static double read_num_or(struct config_reader *o, const char *key, double otherwise)
{
	double value = 0;

	config_read_num(o, key, &value);
	return value != 0 ? value : otherwise;
}

static double yarn_scale(double factor, double mscale)
{
	return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static void read_yarn(struct config_reader *o, const struct model_config *c, struct rope_config *rope)
{
	double mscale, mscale_all_dim;

	if (config_is_null(o, "factor"))
		rope->factor = (double)c->max_positions / (double)rope->original_max_position_embeddings;
	else
		require_positive(o, "factor", &rope->factor);
	rope->beta_fast = read_num_or(o, "beta_fast", 32);
	rope->beta_slow = read_num_or(o, "beta_slow", 1);
	if (!o->err) {
		config_check_positive(o, "beta_fast", rope->beta_fast);
		config_check_positive(o, "beta_slow", rope->beta_slow);
	}
	mscale = read_num_or(o, "mscale", 0);
	mscale_all_dim = read_num_or(o, "mscale_all_dim", 0);
	if (mscale != 0 && mscale_all_dim != 0)
		rope->attention_factor =
		        yarn_scale(rope->factor, mscale) / yarn_scale(rope->factor, mscale_all_dim);
	else
		rope->attention_factor = yarn_scale(rope->factor, 1);
	config_read_num(o, "attention_factor", &rope->attention_factor);
	rope->truncate = !config_is_null(o, "truncate");
	config_read_flag(o, "truncate", &rope->truncate);
	if (!o->err && rope->theta == 1)
		config_fail(o, ERR_INPUT, "yarn needs a rope_theta other than 1");
}

/* Ding et al. 2024: attention_factor defaults to a function of how far the context is stretched. */
static void read_longrope(struct config_reader *o, const struct model_config *c, struct rope_config *rope)
{
	double original = (double)rope->original_max_position_embeddings;

	rope->factor = (double)c->max_positions / original;
	if (config_has(o, "factor"))
		require_positive(o, "factor", &rope->factor);
	rope->attention_factor = rope->factor <= 1 ? 1 : sqrt(1 + log(rope->factor) / log(original));
	if (!config_has(o, "attention_factor"))
		return;
	require_positive(o, "attention_factor", &rope->attention_factor);
}

/* Reads the divisors of the frequencies, one for each pair. */
static void read_factors(struct config_reader *o, struct rope_config *rope)
{
	static const char *const keys[] = {"short_factor", "long_factor"};
	size_t half = (size_t)rope->rotary / 2;

	if (o->err)
		return;
	rope->factors = mem_alloc(2 * half, sizeof(*rope->factors));
	if (!rope->factors) {
		o->err = ERR_NOMEM;
		return;
	}
	for (size_t k = 0; k < 2 && !o->err; k++) {
		json_t *list = NULL;
		int found = json_get_array(o->object, o->where, keys[k], &list);

		if (found < 0)
			o->err = found;
		else if (!found)
			config_fail(o, ERR_INPUT, "%s is missing", keys[k]);
		else if (json_array_size(list) != half)
			config_fail(o, ERR_INPUT, "%s has %zu numbers, but a head has %zu rotated pairs",
			        keys[k], json_array_size(list), half);
		for (size_t i = 0; i < half && !o->err; i++) {
			const json_t *value = json_array_get(list, i);

			rope->factors[k * half + i] = json_number_value(value);
			if (!json_is_number(value) || !(json_number_value(value) > 0))
				config_fail(o, ERR_INPUT, "%s[%zu] must be a number above 0", keys[k], i);
		}
	}
}

static void read_scaling(struct config_reader *r, struct config_reader *o, const struct model_config *c,
        struct rope_config *rope, const struct family_rope *family)
{
	int64_t *original = &rope->original_max_position_embeddings;

	*original = family->original_otherwise ? family->original_otherwise : c->max_positions;
	if (rope->kind == ROPE_LLAMA3 || rope->kind == ROPE_YARN || rope->kind == ROPE_LONGROPE) {
		if (!family->original_otherwise)
			config_read_int(o, "original_max_position_embeddings", original, 1, INT32_MAX);
		if (!family->two_sets)
			config_read_int(r, "original_max_position_embeddings", original, 1, INT32_MAX);
	}
	if (r->err && !o->err)
		o->err = r->err;
	if (rope->kind == ROPE_YARN)
		read_yarn(o, c, rope);
	else if (rope->kind == ROPE_LONGROPE)
		read_longrope(o, c, rope);
	else if (rope->kind != ROPE_DEFAULT && (rope->kind != ROPE_PROPORTIONAL || config_has(o, "factor")))
		require_positive(o, "factor", &rope->factor);
	if (rope->kind == ROPE_LLAMA3) {
		require_positive(o, "low_freq_factor", &rope->low_freq_factor);
		require_positive(o, "high_freq_factor", &rope->high_freq_factor);
	}
}

/* Ministral 3, after Llama 4: q grows with each original context that its position has passed. */
static void read_query_beta(struct config_reader *o, struct rope_config *rope, const char *key)
{
	static const char original[] = "original_max_position_embeddings";

	if (!config_has(o, key))
		config_fail(o, ERR_INPUT, "%s is missing", key);
	config_read_num(o, key, &rope->query_beta);
	if (!o->err)
		config_check_epsilon(o, key, rope->query_beta);
	if (rope->kind != ROPE_DEFAULT && rope->kind != ROPE_LINEAR)
		return;
	if (!o->err && !config_has(o, original))
		config_fail(o, ERR_INPUT, "%s is missing", original);
	config_read_int(o, original, &rope->original_max_position_embeddings, 1, INT32_MAX);
}

/* A head of D rotates int(D * partial) dims. An odd number gets one more dim, as in transformers. With
 * proportional settings all dims have a pair, of which that part turns. */
static void set_rotary(
        struct config_reader *o, int64_t D, struct rope_config *rope, double partial, const char *key)
{
	int is_proportional = rope->kind == ROPE_PROPORTIONAL;

	if (!(partial >= 0 && partial <= 1)) {
		config_fail(o, ERR_INPUT, "%s is %g; it must be from 0 to 1", key, partial);
		return;
	}
	rope->turned = is_proportional ? (int64_t)((double)D * partial) / 2 : 0;
	rope->frequency_dim = is_proportional ? D : (int64_t)((double)D * partial);
	rope->rotary = (rope->frequency_dim + 1) / 2 * 2;
	if (rope->rotary > D)
		config_fail(o, ERR_INPUT,
		        "a head of %" PRId64 " dimensions cannot be rotated in pairs; head_dim must be even",
		        D);
	if (rope->rotary != rope->frequency_dim && (rope->kind == ROPE_YARN || rope->kind == ROPE_LONGROPE))
		config_fail(o, ERR_UNSUPPORTED,
		        "yarn and longrope need an even number of rotary dimensions, not %" PRId64,
		        rope->frequency_dim);
	if (!rope->rotary)
		rope->kind = ROPE_NONE;
}

/* Reads one set of settings, for heads of D. Values in `o`, if it has an object, replace theta and the
 * defaults. */
static void read_set(struct config_reader *r, struct config_reader *o, const struct model_config *c,
        struct rope_config *rope, const struct family_rope *family, double theta, int64_t D)
{
	const char *partial_key = family->partial ? family->partial : "partial_rotary_factor";
	double partial = family->partial_otherwise != 0 ? family->partial_otherwise : 1;
	int is_absent = family->otherwise.kind != ROPE_NONE && !o->object && rope == c->rope &&
	                !config_has(r, "rope_parameters");

	*rope = (struct rope_config){
	        .kind = ROPE_DEFAULT, .theta = theta, .factor = 1, .attention_factor = 1};
	config_read_num(r, partial_key, &partial);
	if (r->err)
		return;
	if (is_absent) {
		*rope = family->otherwise;
		partial = rope->kind == ROPE_PROPORTIONAL ? rope->partial : partial;
		config_read_int(r, "original_max_position_embeddings",
		        &rope->original_max_position_embeddings, 1, INT32_MAX);
		if (rope->theta == 0)
			rope->theta = theta;
		else
			config_warn_ignored(r, "rope_theta",
			        "there is no rope_scaling, and this family's default has its own");
		o->err = r->err;
	}
	if (o->object) {
		refuse_nested(o);
		config_read_num(o, "rope_theta", &rope->theta);
		config_read_num(o, "partial_rotary_factor", &partial);
		if (!o->err)
			read_kind(o, c, rope, family);
	}
	if (!o->err)
		config_check_positive(o, "rope theta", rope->theta);
	if (!o->err && o->object)
		read_scaling(r, o, c, rope, family);
	if (!o->err && family->query_beta && !is_absent)
		read_query_beta(o, rope, family->query_beta);
	if (!o->err && !family->partial_in_default && partial != 1 && rope->kind != ROPE_PROPORTIONAL) {
		if (rope->kind == ROPE_DEFAULT)
			log_warn("%s: ignoring %s, because this family rotates whole heads", r->where,
			        partial_key);
		else if ((int64_t)((double)D * partial) != D)
			config_fail(o, ERR_UNSUPPORTED, "%s %g: this family rotates only whole heads",
			        partial_key, partial);
		partial = 1;
	}
	if (!o->err)
		set_rotary(o, D, rope, partial, partial_key);
	if (rope->kind == ROPE_LONGROPE)
		read_factors(o, rope);
	r->err = o->err;
}

/* The size of the heads that use a setting: of the first such block. */
static int64_t head_of_set(const struct model_config *c, int set)
{
	for (int64_t l = 0; l < c->L; l++)
		if ((c->block[l].window > 0) == set && c->block[l].D)
			return c->block[l].D;
	return c->D;
}

/* Reads the settings of blocks with full attention and of blocks with a window. Each kind has its own object;
 * in older files rope_scaling is for full attention only. */
static void read_two_sets(struct config_reader *r, struct model_config *c, const struct family_rope *family,
        struct config_reader *both, double theta)
{
	static const char *const names[ROPES_MAX] = {"full_attention", "sliding_attention"};
	double local_theta = family->local_theta_otherwise;
	int is_old = json_object_size(json_object_get(r->object, "rope_scaling")) > 0;
	int is_new = json_object_size(json_object_get(r->object, "rope_parameters")) > 0;

	if (is_old && is_new)
		config_fail(r, ERR_UNSUPPORTED,
		        "rope_scaling and rope_parameters are both there; remove one of them");
	if (is_new && !json_object_get(both->object, names[0]) && !json_object_get(both->object, names[1]))
		log_warn("%s is ignored: it has neither %s nor %s", both->where, names[0], names[1]);
	if (family->local_theta)
		config_read_num(r, family->local_theta, &local_theta);
	for (int i = 0; i < ROPES_MAX && !r->err; i++) {
		struct config_reader o = {.where = both->where};
		json_t *object = NULL;
		int found = is_old || !both->object
		                    ? 0
		                    : json_get_object(both->object, both->where, names[i], &object);

		o.err = found < 0 ? found : 0;
		o.object = is_old && !i ? both->object : object;
		read_set(r, &o, c, &c->rope[i], family, i ? local_theta : theta, head_of_set(c, i));
	}
	if (!r->err && c->rope[1].kind == ROPE_LONGROPE)
		config_fail(r, ERR_UNSUPPORTED, "%s: %s: longrope is not supported", both->where, names[1]);
	c->rope_count = ROPES_MAX;
}

/* Reads the settings of a family whose only rotary key is the number of rotated dims. */
static void read_dims(struct config_reader *r, struct model_config *c, const struct family_rope *family)
{
	int64_t dims = family->dims_otherwise;

	if (config_is_null(r, family->dims))
		config_fail(r, ERR_INPUT, "%s is null; it must be a number", family->dims);
	config_read_size(r, family->dims, &dims);
	if (dims % 2 || dims > c->D)
		config_fail(r, ERR_INPUT,
		        "%s is %" PRId64 "; it must be even and at most the size of a head, %" PRId64,
		        family->dims, dims, c->D);
	c->rope[0] = (struct rope_config){.kind = ROPE_DEFAULT,
	        .theta = 10000,
	        .factor = 1,
	        .attention_factor = 1,
	        .rotary = dims,
	        .frequency_dim = dims};
	c->rope_count = 1;
}

static void read_sets(struct config_reader *r, struct model_config *c, const struct family_rope *family)
{
	double theta = family->theta_otherwise != 0 ? family->theta_otherwise : 10000;
	char where[512];
	struct config_reader o = rope_object(r, where, sizeof(where));

	config_read_num(r, family->theta ? family->theta : "rope_theta", &theta);
	if (!r->err && o.err)
		r->err = o.err;
	if (r->err)
		return;
	if (family->two_sets) {
		read_two_sets(r, c, family, &o, theta);
	} else {
		read_set(r, &o, c, &c->rope[0], family, theta, c->D);
		c->rope_count = c->rope[0].kind != ROPE_NONE;
	}
}

void config_read_rope(struct config_reader *r, struct model_config *c, const struct family_rope *family)
{
	if (family->dims)
		read_dims(r, c, family);
	else
		read_sets(r, c, family);
	for (int64_t l = 0; l < c->L && !r->err; l++)
		c->block[l].rope = c->rope_count ? 0 : -1;
}
