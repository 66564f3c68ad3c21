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

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* With lora_adapter its adapter_config.json says everything, and the keys must agree. */
static int check_keys(const struct config *c, const struct peft_config *found)
{
	double rank = (double)c->lora_rank;
	double scale = c->lora_alpha / (c->use_rslora ? sqrt(rank) : rank);

	if (c->lora_rank && c->lora_rank != found->rank)
		return err_set(ERR_INPUT, "%s=%d, but the adapter in %s has rank %d; leave it out",
		        config_where(c, "lora_rank"), (int)c->lora_rank, c->lora_adapter, (int)found->rank);
	if (c->lora_rank && c->lora_alpha != 0 && fabs(scale - found->scale) > 1e-6 * found->scale)
		return err_set(ERR_INPUT,
		        "%s=%g is a scale of %g, but the adapter in %s has %g; leave it out",
		        config_where(c, "lora_alpha"), c->lora_alpha, scale, c->lora_adapter, found->scale);
	return 0;
}

static int adapt_as_found(struct session *s)
{
	const struct config *c = s->config;
	struct peft_config found;
	int rc = peft_config_read(&found, c->lora_adapter);

	if (!rc)
		rc = check_keys(c, &found);
	if (!rc)
		rc = model_adapt(s->model,
		        &(struct adapter_options){
		                .rank = found.rank, .scale = found.scale, .targets = found.targets});
	peft_config_free(&found);
	return rc ? err_note(rc, "%s", config_where(c, "lora_adapter")) : 0;
}

int session_adapt(struct session *s)
{
	const struct config *c = s->config;
	double rank = (double)c->lora_rank, alpha = c->lora_alpha != 0 ? c->lora_alpha : rank;
	int rc;

	if (s->model->config.adapter.rank)
		return 0;
	if (c->lora_adapter)
		return adapt_as_found(s);
	if (!c->lora_rank)
		return 0;
	rc = model_adapt(s->model, &(struct adapter_options){.rank = c->lora_rank,
	                                   .scale = alpha / (c->use_rslora ? sqrt(rank) : rank),
	                                   .targets = c->lora_target_modules});
	return rc == ERR_INPUT ? err_note(rc, "%s", config_where(c, "lora_target_modules")) : rc;
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
	uint64_t hash = 0;
	int rc;

	if (!ranks_reads_files(c, world_self()))
		return 0;
	if (then && c->init_weights == CONFIG_INIT_WEIGHTS_RANDOM)
		return err_set(ERR_INPUT,
		        "%s=random: the run's adapters were trained on the model's files; remove it",
		        config_where(c, "init_weights"));
	if (!s->import || !adapters_leave_base(s))
		return 0;
	rc = hf_import_sample(&hash, s->import);
	snprintf(s->base, sizeof(s->base), "%016" PRIx64, hash);
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
