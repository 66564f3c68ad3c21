/* Adds adapters to a run's model, and fills them. */
#include "train/adapters.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/str.h"
#include "checkpoint/file/weights.h"
#include "checkpoint/fresh_weights.h"
#include "checkpoint/hf/overlay.h"
#include "checkpoint/hf/peft.h"
#include "comm/world.h"
#include "model/adapter.h"
#include "model/expert_names.h"
#include "model/family.h"
#include "placement/ranks.h"
#include "train/ranks/planes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* With lora_adapter its adapter_config.json says everything, and the keys must agree. */
static int check_keys(const struct config *c, const struct peft_config *found)
{
	const struct adapter_options asked = {
	        .rank = c->lora_rank, .alpha = c->lora_alpha, .use_rslora = c->use_rslora};
	double has = adapter_scale(&found->options);

	if (c->lora_rank && c->lora_rank != found->options.rank)
		return err_set(ERR_INPUT, "%s=%d, but the adapter in %s has rank %d; leave it out",
		        config_where(c, "lora_rank"), (int)c->lora_rank, c->lora_adapter,
		        (int)found->options.rank);
	if (c->lora_rank && c->lora_alpha != 0 && fabs(adapter_scale(&asked) - has) > 1e-6 * has)
		return err_set(ERR_INPUT,
		        "%s=%g is a scale of %g, but the adapter in %s has %g; leave it out",
		        config_where(c, "lora_alpha"), c->lora_alpha, adapter_scale(&asked), c->lora_adapter,
		        has);
	if (c->use_dora && !found->options.use_dora)
		return err_set(ERR_INPUT, "%s=on, but the adapter in %s has no magnitudes; leave it out",
		        config_where(c, "use_dora"), c->lora_adapter);
	return 0;
}

/* What the adapter is: a resumed run needs its directory no more, as the checkpoint has all of it. */
static int found_read(struct session *s)
{
	const char *dir = s->config->lora_adapter;

	if (!s->adapter_then || file_is_in(dir, PEFT_CONFIG_NAME))
		return peft_config_read(&s->adapter, dir);
	if (!world_self()->rank)
		log_info("lora_adapter=%s is not there; the checkpoint has the adapter", dir);
	return peft_config_of(&s->adapter, s->adapter_then, "the checkpoint's adapter");
}

static int adapt_as_found(struct session *s)
{
	const struct config *c = s->config;
	int rc = found_read(s);

	if (!rc)
		rc = check_keys(c, &s->adapter);
	if (!rc && c->lora_dropout >= 0)
		s->adapter.options.dropout = c->lora_dropout;
	if (!rc)
		rc = model_adapt(s->model, &s->adapter.options);
	if (!rc)
		rc = peft_find_given(&s->adapter, c->lora_adapter, s->model);
	if (!rc && (s->adapter.options.saved || s->adapter.options.given) &&
	        c->preference_reference == CONFIG_PREFERENCE_REFERENCE_BASE)
		rc = err_set(ERR_UNSUPPORTED,
		        "it has whole modules, which %s=base cannot take off; use start",
		        config_where(c, "preference_reference"));
	if (!rc && s->adapter.options.use_dora && c->preference_reference == CONFIG_PREFERENCE_REFERENCE_BASE)
		rc = err_set(ERR_UNSUPPORTED,
		        "it is DoRA, and %s=base cannot take off its magnitudes; use start",
		        config_where(c, "preference_reference"));
	if (!rc && c->verb == VERB_TRAIN && c->lora_dropout < 0 && s->adapter.options.dropout > 0 &&
	        !world_self()->rank)
		log_info("%s=%s has lora_dropout=%g, and so has this run", config_where(c, "lora_adapter"),
		        c->lora_adapter, s->adapter.options.dropout);
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

/* A list, also of one name. */
static int put_parameters(json_t *object, const struct config *c)
{
	json_t *names;
	int rc = put_key(object, c, "lora_target_parameters", "target_parameters");

	if (rc || json_is_array(json_object_get(object, "target_parameters")))
		return rc;
	if (c->lora_layers && !world_self()->rank)
		log_warn("%s does not limit %s, as in PEFT", config_where(c, "lora_layers"),
		        config_where(c, "lora_target_parameters"));
	names = json_pack("[O]", json_object_get(object, "target_parameters"));
	return json_object_set_new(object, "target_parameters", names) ? ERR_NOMEM : 0;
}

/* "0,1", "[0, 1]" or ["0", "1"], as files and the command line say it. */
static int put_layers(json_t *object, const struct config *c)
{
	static const char between[] = " ,[]\"";
	const char *text = config_text(c, "lora_layers"), *p = text + strspn(text, between);
	json_t *layers = json_array();
	int rc = layers ? 0 : ERR_NOMEM;

	for (char *end; *p && !rc; p = end + strspn(end, between)) {
		long long layer = strtoll(p, &end, 10);

		if (end == p || !strchr(between, *end))
			rc = err_set(ERR_INPUT,
			        "%s: \"%.*s\" is no block number; write a list of them, as 0,1",
			        config_where(c, "lora_layers"), (int)strcspn(p, between), p);
		else if (json_array_append_new(layers, json_integer(layer)))
			rc = ERR_NOMEM;
	}
	if (!rc && *text && json_object_set(object, "layers_to_transform", layers))
		rc = ERR_NOMEM;
	json_decref(layers);
	return rc;
}

static int has_expert_adapters(const struct model *model)
{
	int any = 0;

	for (int t = 0; t < model->tensor_count; t++)
		any |= expert_is_adapter(model->tensors[t].role);
	return any;
}

static void warn_of_refused(
        const struct config *c, const struct model *model, const struct adapter_options *o)
{
	const char *refused = model->family->peft_refuses;
	int each = c->lora_expert_form == CONFIG_LORA_EXPERT_FORM_PER_EXPERT,
	    experts = has_expert_adapters(model);

	if (experts && each && !model->family->splits)
		log_warn("%s: experts of this family have no modules of their own; the adapter is fused",
		        config_where(c, "lora_expert_form"));
	else if (experts && each && !peft_loads_per_expert(model))
		log_warn(
		        "%s=per_expert: PEFT does not load this form in this family; auto writes one that it "
		        "loads",
		        config_where(c, "lora_expert_form"));
	for (int t = 0; refused && t < model->tensor_count; t++) {
		const char *name = model->tensors[t].name, *at = strstr(name, refused);

		if (!at || at == name || at[-1] != '.' || strcmp(at + strlen(refused), ".weight") ||
		        model_adapter_of(model, t) < 0)
			continue;
		log_warn("%s: PEFT loads no adapter of %s in this family; for an adapter that it loads "
		         "whole, set "
		         "lora_exclude_modules=%s",
		        o->called.targets, refused, refused);
		return;
	}
}

static int adapt_as_asked(struct session *s)
{
	const struct config *c = s->config;
	json_t *object =
	        json_pack("{s:s,s:I,s:f,s:b,s:b}", "peft_type", "LORA", "r", (json_int_t)c->lora_rank,
	                "lora_alpha", c->lora_alpha != 0 ? c->lora_alpha : (double)c->lora_rank, "use_rslora",
	                c->use_rslora, "use_dora", c->use_dora);
	struct adapter_options *o;
	int rc = object ? put_key(object, c, "lora_target_modules", "target_modules") : ERR_NOMEM;

	if (!rc && c->lora_target_parameters)
		rc = put_parameters(object, c);
	if (!rc)
		rc = put_key(object, c, "lora_exclude_modules", "exclude_modules");
	if (!rc)
		rc = put_layers(object, c);
	if (!rc)
		rc = put_key(object, c, "lora_layers_pattern", "layers_pattern");
	if (!rc)
		rc = put_key(object, c, "lora_modules_to_save", "modules_to_save");
	if (!rc)
		rc = put_key(object, c, "lora_rank_pattern", "rank_pattern");
	if (!rc)
		rc = put_key(object, c, "lora_alpha_pattern", "alpha_pattern");
	if (!rc && c->lora_dropout > 0 &&
	        json_object_set_new(object, "lora_dropout", json_real(c->lora_dropout)))
		rc = ERR_NOMEM;
	if (!rc)
		rc = peft_config_of(&s->adapter, object, "LoRA");
	json_decref(object);
	if (rc)
		return rc;
	o = &s->adapter.options;
	o->is_asked = 1;
	o->called.targets = config_where(c, "lora_target_modules");
	o->called.parameters = config_where(c, "lora_target_parameters");
	o->called.exclude = config_where(c, "lora_exclude_modules");
	o->called.layers = config_where(c, "lora_layers");
	o->called.layers_pattern = config_where(c, "lora_layers_pattern");
	o->called.saved = config_where(c, "lora_modules_to_save");
	o->called.dora = config_where(c, "use_dora");
	o->called.rank_pattern = config_where(c, "lora_rank_pattern");
	o->called.alpha_pattern = config_where(c, "lora_alpha_pattern");
	rc = model_adapt(s->model, o);
	if (!rc)
		warn_of_refused(c, s->model, o);
	return rc;
}

int session_adapt(struct session *s)
{
	const struct config *c = s->config;
	int rc = 0;

	if (s->model->config.adapter_rank)
		return 0;
	if (c->lora_adapter)
		rc = adapt_as_found(s);
	else if (c->lora_rank)
		rc = adapt_as_asked(s);
	if (!rc && c->lora_expert_form != CONFIG_LORA_EXPERT_FORM_AUTO && !has_expert_adapters(s->model))
		log_warn("%s=%s has no effect: no expert has an adapter", config_where(c, "lora_expert_form"),
		        config_said(c, "lora_expert_form"));
	if (!rc && c->loraplus_lr_ratio > 1 && s->model->config.adapter[ROLE_EMBED_LORA_A].rank)
		rc = err_set(ERR_UNSUPPORTED,
		        "%s=%g: LoRA+ is not supported with an adapter of the embedding; leave the embedding "
		        "out of %s, or remove loraplus_lr_ratio",
		        config_where(c, "loraplus_lr_ratio"), c->loraplus_lr_ratio,
		        c->lora_adapter ? "the adapter" : config_where(c, "lora_target_modules"));
	return rc;
}

/* Beside adapters a classifier's head trains, and one of masked words that has random values. */
static int trains_as_head(const struct model *model, const struct model_tensor *t)
{
	return t->is_new || (model_tensor_is_of_classes(t) && model->config.is_classifier != HEAD_OF_WORDS);
}

int adapters_pattern(char **pattern, const struct session *s)
{
	const char *trainable = s->config->trainable;
	struct str text = {0};

	if (trainable)
		str_printf(&text, "(?:%s)|", trainable);
	str_add(&text, ".*\\.lora_(?:[AB]\\.weight|embedding_[AB]|magnitude_vector)");
	for (int t = 0; t < s->model->tensor_count; t++)
		if ((s->model->tensors[t].in_adapter == IN_ADAPTER_PART &&
		            !model_tensor_is_adapter(&s->model->tensors[t])) ||
		        trains_as_head(s->model, &s->model->tensors[t]))
			str_printf(&text, "|\\Q%s\\E", s->model->tensors[t].name);
	*pattern = str_take(&text);
	return *pattern ? 0 : ERR_NOMEM;
}

int session_leaves_base(const struct session *s)
{
	const struct config *c = s->config;
	int freezes = s->model->config.adapter_rank || c->freeze || c->trainable;

	return freezes && c->init_weights == CONFIG_INIT_WEIGHTS_PRETRAINED && !s->keeps_base;
}

void adapters_find_base(struct session *s)
{
	for (int t = 0; t < s->model->tensor_count; t++)
		s->model->tensors[t].in_files =
		        session_leaves_base(s) && model_tensor_is_of_base(&s->model->tensors[t]);
}

static int is_exact(const void *session, int tensor)
{
	const struct session *s = session;

	return weight_format_keeps(
	        unit_map_format(engine_units(s->engine), tensor), s->model->tensors[tensor].storage);
}

int session_rounds(const struct session *s)
{
	for (int t = 0; t < s->model->tensor_count; t++)
		if (!is_exact(s, t))
			return 1;
	return 0;
}

/* merge_base has all that does not train. */
static int is_trained(const void *session, int tensor)
{
	const struct session *s = session;

	return !model_tensor_is_of_base(&s->model->tensors[tensor]);
}

const struct plane_source *adapters_exact(
        struct overlay *overlay, const struct session *s, const struct plane_source *planes)
{
	if (!session_rounds(s) && !s->values)
		return planes;
	overlay_set(overlay, s->values ? s->values : s->import, planes, s->values ? is_trained : is_exact, s);
	return &overlay->source;
}

int adapters_check_base(struct session *s, const json_t *resumed)
{
	const struct config *c = s->config;
	const char *then = json_string_value(json_object_get(resumed, "base"));
	const char *what;
	int rc;

	s->keeps_base = resumed && !then && !json_object_get(resumed, "adapter");
	if (!ranks_reads_files(c, world_self()))
		return 0;
	if (then && c->init_weights == CONFIG_INIT_WEIGHTS_RANDOM)
		return err_set(ERR_INPUT, "%s=random: the run began with the model's files; remove it",
		        config_where(c, "init_weights"));
	if (!s->import || !session_leaves_base(s))
		return 0;
	rc = hf_import_hash(s->base, s->import);
	if (rc || !then || !strcmp(then, s->base))
		return rc;
	what = s->model->config.adapter_rank ? "the run's adapters were trained on" : "the run began with";
	return err_set(ERR_INPUT,
	        "%s=%s has other files of weights than the model that %s; set model to that one",
	        config_where(c, "model"), c->model, what);
}

int session_read_weights(
        void *context, const struct plane_sink *sink, const struct plane_range *ranges, int64_t range_count)
{
	struct session *s = context;
	struct plane_range *sorted = mem_alloc((size_t)range_count + 1, sizeof(*sorted));
	int64_t base = 0, adapters = range_count;
	int rc = sorted ? 0 : ERR_NOMEM;

	for (int64_t i = 0; i < range_count && !rc; i++) { /* the model's first, adapters' at the end */
		const struct model_tensor *t = &s->model->tensors[ranges[i].tensor];
		int is_new =
		        s->config->lora_adapter ? t->in_adapter : model_tensor_is_adapter(t) || t->is_new;

		sorted[is_new ? --adapters : base++] = ranges[i];
	}
	if (!rc)
		rc = hf_import_load(s->import, sink, sorted, base, s->pool);
	if (!rc && adapters < range_count)
		rc = s->config->lora_adapter ? peft_load(s->config->lora_adapter, s->model, sink,
		                                       sorted + adapters, range_count - adapters)
		                             : fresh_weights_load(s->model, (uint64_t)s->config->seed, sink,
		                                       sorted + adapters, range_count - adapters, s->pool);
	if (!rc && !s->config->lora_adapter)
		rc = magnitudes_load(s, sink, sorted + adapters, range_count - adapters);
	mem_free(sorted);
	return rc;
}

/* ---- the model without its adapters ---- */

static int zero_write(const struct plane_sink *sink, const struct model *model, int tensor)
{
	static const float zeros[4096];
	int64_t total = model->tensors[tensor].count;
	struct weights_target target;
	int rc = 0;

	weights_target_open(&target, sink, model);
	for (int64_t at = 0, count; at < total && !rc; at += count) {
		count = min_i64((int64_t)(sizeof(zeros) / sizeof(*zeros)), total - at);
		rc = weights_put(&target, FORMAT_F32, tensor, at, count, zeros);
	}
	weights_target_close(&target);
	return rc;
}

int adapters_switch(struct session *s, enum adapters_state state)
{
	const struct model *model = s->model;
	struct plane_range *ranges = mem_alloc((size_t)model->tensor_count, sizeof(*ranges));
	struct plane_sink sink;
	int64_t count = 0;
	int rc = ranges ? 0 : ERR_NOMEM;

	planes_sink(&sink, s->engine);
	for (int t = 0; t < model->tensor_count && !rc; t++) {
		if (!model_tensor_is_adapter(&model->tensors[t]) || role_is_a(model->tensors[t].role))
			continue;
		if (state == ADAPTERS_OFF)
			rc = zero_write(&sink, model, t);
		else
			ranges[count++] = (struct plane_range){t, 0, model->tensors[t].count};
	}
	if (!rc && count)
		rc = peft_load(s->config->lora_adapter, model, &sink, ranges, count);
	mem_free(ranges);
	return rc;
}

/* ---- files that results need ---- */

int session_keeps_whole(const struct config *c)
{
	return !c->export_text_only || c->state_dict_type == CONFIG_STATE_DICT_FULL;
}

const struct hf_layout *session_layout(const struct session *s)
{
	return hf_import_layout(s->import);
}

int session_needs_files(const struct session *s)
{
	const struct config *c = s->config;

	return c->verb == VERB_TRAIN && !world_self()->rank && session_layout(s) && session_keeps_whole(c);
}

int session_find_files(struct session *s, const json_t *resumed)
{
	const char *then = json_string_value(json_object_get(resumed, SESSION_CARRIED));
	const struct config *c = s->config;
	int rc;

	if (!session_layout(s) || c->init_weights == CONFIG_INIT_WEIGHTS_RANDOM)
		return 0;
	rc = hf_import_hash(s->carried, s->import);
	if (rc || !then || !strcmp(then, s->carried))
		return rc;
	return err_set(ERR_INPUT,
	        "%s=%s has other files of weights than the model that the run began with; set model to that "
	        "one",
	        config_where(c, "model"), c->model);
}

int session_check_files(const struct session *s)
{
	char now[HF_HASH_BYTES];
	int rc = session_layout(s) ? hf_import_hash(now, s->import) : 0;

	if (rc || !session_layout(s) || !strcmp(now, s->carried))
		return rc;
	return err_set(ERR_INPUT,
	        "%s: the files of weights changed while the run went on, so a result cannot have the parts "
	        "that it "
	        "does not train from them; put the files back and resume, or resume with export_text_only=on",
	        s->config->model);
}
