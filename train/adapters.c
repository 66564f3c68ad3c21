/* Adds adapters to a run's model, and fills them. */
#include "train/adapters.h"

#include "base/err.h"
#include "base/mem.h"
#include "checkpoint/fresh_weights.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/peft.h"
#include "comm/world.h"
#include "model/adapter.h"
#include "placement/ranks.h"

#include <math.h>
#include <string.h>

static double scale_of(const struct adapter_options *o)
{
	return o->alpha / (o->use_rslora ? sqrt((double)o->rank) : (double)o->rank);
}

/* With lora_adapter its adapter_config.json says everything, and the keys must agree. */
static int check_keys(const struct config *c, const struct peft_config *found)
{
	const struct adapter_options asked = {
	        .rank = c->lora_rank, .alpha = c->lora_alpha, .use_rslora = c->use_rslora};
	double has = scale_of(&found->options);

	if (c->lora_rank && c->lora_rank != found->options.rank)
		return err_set(ERR_INPUT, "%s=%d, but the adapter in %s has rank %d; leave it out",
		        config_where(c, "lora_rank"), (int)c->lora_rank, c->lora_adapter,
		        (int)found->options.rank);
	if (c->lora_rank && c->lora_alpha != 0 && fabs(scale_of(&asked) - has) > 1e-6 * has)
		return err_set(ERR_INPUT,
		        "%s=%g is a scale of %g, but the adapter in %s has %g; leave it out",
		        config_where(c, "lora_alpha"), c->lora_alpha, scale_of(&asked), c->lora_adapter, has);
	return 0;
}

static int adapt_as_found(struct session *s)
{
	const struct config *c = s->config;
	int rc = peft_config_read(&s->adapter, c->lora_adapter);

	if (!rc)
		rc = check_keys(c, &s->adapter);
	if (!rc)
		rc = model_adapt(s->model, &s->adapter.options);
	return rc ? err_note(rc, "%s", config_where(c, "lora_adapter")) : 0;
}

/* Puts the value of a key into the object under PEFT's name. */
static int put_key(json_t *object, const struct config *c, const char *key, const char *name)
{
	const char *text = config_text(c, key);
	json_t *value = NULL;
	int rc;

	if (!*text)
		return 0;
	if (*text == '{')
		rc = json_parse(&value, config_where(c, key), text, strlen(text));
	else
		rc = adapter_targets(&value, text);
	if (rc)
		return *text == '{' ? rc : err_note(rc, "%s", config_where(c, key));
	return json_object_set_new(object, name, value) ? ERR_NOMEM : 0;
}

static int adapt_as_asked(struct session *s)
{
	const struct config *c = s->config;
	json_t *object = json_pack("{s:s,s:I,s:f,s:b}", "peft_type", "LORA", "r", (json_int_t)c->lora_rank,
	        "lora_alpha", c->lora_alpha != 0 ? c->lora_alpha : (double)c->lora_rank, "use_rslora",
	        c->use_rslora);
	struct adapter_options *o;
	int rc = object ? put_key(object, c, "lora_target_modules", "target_modules") : ERR_NOMEM;

	if (!rc)
		rc = put_key(object, c, "lora_exclude_modules", "exclude_modules");
	if (!rc)
		rc = put_key(object, c, "lora_rank_pattern", "rank_pattern");
	if (!rc)
		rc = put_key(object, c, "lora_alpha_pattern", "alpha_pattern");
	if (!rc)
		rc = peft_config_of(&s->adapter, object, "LoRA");
	json_decref(object);
	if (rc)
		return rc;
	o = &s->adapter.options;
	o->called.targets = config_where(c, "lora_target_modules");
	o->called.exclude = config_where(c, "lora_exclude_modules");
	o->called.rank_pattern = config_where(c, "lora_rank_pattern");
	o->called.alpha_pattern = config_where(c, "lora_alpha_pattern");
	return model_adapt(s->model, o);
}

int session_adapt(struct session *s)
{
	if (s->model->config.adapter.rank)
		return 0;
	if (s->config->lora_adapter)
		return adapt_as_found(s);
	return s->config->lora_rank ? adapt_as_asked(s) : 0;
}

int adapters_pattern(char **pattern, const struct config *c)
{
	static const char adapters[] = ".*\\.lora_[AB]\\.weight";

	*pattern = c->trainable ? mem_printf("(?:%s)|%s", c->trainable, adapters) : mem_strdup(adapters);
	return *pattern ? 0 : ERR_NOMEM;
}

int adapters_leave_base(const struct session *s)
{
	return s->model->config.adapter.rank && s->config->init_weights == CONFIG_INIT_WEIGHTS_PRETRAINED;
}

int adapters_check_base(struct session *s, const json_t *resumed)
{
	const struct config *c = s->config;
	const char *then = json_string_value(json_object_get(resumed, "base"));
	int rc;

	if (!ranks_reads_files(c, world_self()))
		return 0;
	if (then && c->init_weights == CONFIG_INIT_WEIGHTS_RANDOM)
		return err_set(ERR_INPUT,
		        "%s=random: the run's adapters were trained on the model's files; remove it",
		        config_where(c, "init_weights"));
	if (!s->import || !adapters_leave_base(s))
		return 0;
	rc = hf_import_hash(s->base, s->import);
	if (rc || !then || !strcmp(then, s->base))
		return rc;
	return err_set(ERR_INPUT,
	        "%s=%s has other files of weights than the model that the run's adapters were trained on; "
	        "set "
	        "model to that one",
	        config_where(c, "model"), c->model);
}

int session_read_weights(
        void *context, const struct plane_sink *sink, const struct plane_range *ranges, int64_t range_count)
{
	struct session *s = context;
	struct plane_range *sorted = mem_alloc((size_t)range_count + 1, sizeof(*sorted));
	int64_t base = 0, adapters = range_count;
	int rc = sorted ? 0 : ERR_NOMEM;

	for (int64_t i = 0; i < range_count && !rc; i++) /* the model's first, adapters' at the end */
		sorted[model_tensor_is_adapter(&s->model->tensors[ranges[i].tensor]) ? --adapters : base++] =
		        ranges[i];
	if (!rc)
		rc = hf_import_load(s->import, sink, sorted, base, s->pool);
	if (!rc && adapters < range_count)
		rc = s->config->lora_adapter ? peft_load(s->config->lora_adapter, s->model, sink,
		                                       sorted + adapters, range_count - adapters)
		                             : fresh_weights_load(s->model, (uint64_t)s->config->seed, sink,
		                                       sorted + adapters, range_count - adapters, s->pool);
	mem_free(sorted);
	return rc;
}
