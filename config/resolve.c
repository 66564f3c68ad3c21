/* Resolves keys that depend on each other, after all are set. */
#include "config/data_keys.h"
#include "config/table.h"

#include "base/dtype.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

/* Gives a key its default, as if nothing had set it. */
static int unset(struct config *c, const char *name)
{
	const struct config_key *key = config_key_find(name);
	struct config_origin *origin = &c->origins[key - config_keys];
	const struct config_word *refused;

	config_origin_free(origin);
	return config_value_set(c, key, key->default_text, &refused);
}

static int resolve_resume(struct config *c)
{
	char *text = c->resume_from_checkpoint;

	if (!text)
		return 0;
	if (config_name_in(text, "off false no 0 none")) {
		mem_free(text);
		c->resume_from_checkpoint = NULL;
	} else if (config_name_in(text, "auto true on yes 1 latest")) {
		c->resume_from_checkpoint = mem_strdup("auto");
		mem_free(text);
		return c->resume_from_checkpoint ? 0 : ERR_NOMEM;
	}
	return 0;
}

/* Whether the command line sets the key, and a file the other one. */
static int is_later(const struct config *c, const char *key, const char *other)
{
	const char *at = config_set_at(c, key), *other_at = config_set_at(c, other);

	return at && !*at && other_at && *other_at;
}

/* Keeps one of the two keys. */
static int resolve_warmup(struct config *c)
{
	if (is_later(c, "warmup_ratio", "warmup_steps"))
		return unset(c, "warmup_steps");
	if (is_later(c, "warmup_steps", "warmup_ratio"))
		return unset(c, "warmup_ratio");
	if (!(c->warmup_steps > 0 && c->warmup_ratio > 0))
		return 0;
	log_warn("%s=%g has no effect with warmup_steps=%g", config_where(c, "warmup_ratio"), c->warmup_ratio,
	        c->warmup_steps);
	return unset(c, "warmup_ratio");
}

/* Sets a key to what follows from another one. */
static int resolve_from(struct config *c, const char *name, const char *other, const char *text)
{
	struct config_origin *to = &c->origins[config_key_find(name) - config_keys];
	const struct config_origin *from = &c->origins[config_key_find(other) - config_keys];
	int err = config_set_meant(c, NULL, name, from->as, 0, text);

	mem_free(to->place);
	to->place = mem_strdup(from->place);
	return !err && !to->place ? ERR_NOMEM : err;
}

int config_stage_dtype(const struct config *c)
{
	return c->compute_dtype == DTYPE_F8_E4M3 ? DTYPE_BF16 : (int)c->compute_dtype;
}

int config_resolve(struct config *c)
{
	int offloaded = c->cpu_offload != CONFIG_AUTO && (c->cpu_offload & CONFIG_OFFLOAD_ACTIVATIONS);
	int err = resolve_warmup(c);

	if (!err)
		err = data_keys_resolve(c);

	if (err)
		return err;
	if (!c->per_device_eval_batch_size)
		c->per_device_eval_batch_size = c->per_device_train_batch_size;
	if (c->gradient_dtype == CONFIG_AUTO)
		c->gradient_dtype = config_stage_dtype(c);
	if (c->export_dtype == CONFIG_AUTO && config_trains(c))
		c->export_dtype = config_stage_dtype(c);
	/* activations=recompute fits with offload: offload also recomputes and moves only block inputs */
	if (offloaded && config_was_set(c, "activations") && config_keeps_activations(c))
		return err_set(ERR_INPUT,
		        "cpu_offload names activations, but activations=%s; drop one of them",
		        config_text(c, "activations"));
	if (offloaded && c->activations != CONFIG_ACTIVATIONS_OFFLOAD)
		err = resolve_from(c, "activations", "cpu_offload", "offload");
	else if (!offloaded && c->activations == CONFIG_ACTIVATIONS_OFFLOAD && c->cpu_offload != CONFIG_AUTO)
		c->cpu_offload |= CONFIG_OFFLOAD_ACTIVATIONS;
	return err ? err : resolve_resume(c);
}
