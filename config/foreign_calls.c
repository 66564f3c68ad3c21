/* Foreign keys that need a function. */
#include "config/foreign_item.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/launch.h"
#include "data/label.h"
#include "data/template/builtin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ON "on true yes 1"
#define ADAMW                                                                                                \
	"adamw adamw_torch adamw_torch_fused adamw_hf adamw_apex_fused adamw_anyprecision torch.optim.AdamW"

void item_kept_free(struct foreign_item *kept)
{
	mem_free(kept->file);
	mem_free(kept->name);
	mem_free(kept->text);
	*kept = (struct foreign_item){0};
}

int item_keep(struct foreign_item *kept, const struct item *s)
{
	item_kept_free(kept);
	*kept = (struct foreign_item){.file = s->layer->file ? mem_strdup(s->layer->file) : NULL,
	        .name = mem_strdup(s->name),
	        .text = mem_strdup(s->text),
	        .line = s->line};
	return kept->name && kept->text && (kept->file || !s->layer->file) ? 0 : ERR_NOMEM;
}

static enum foreign_event event_of(const struct item *s)
{
	static const char *const names[FOREIGN_EVENTS] = {[FOREIGN_SAVE] = "save_strategy saves_per_epoch",
	        [FOREIGN_LOG] = "logging_strategy",
	        [FOREIGN_EVAL] = "eval_strategy evaluation_strategy evals_per_epoch"};
	int event = FOREIGN_EVENTS - 1;

	while (event > 0 && !config_name_in(s->name, names[event]))
		event--;
	return (enum foreign_event)event;
}

static int strategy(const struct item *s)
{
	struct foreign_strategy *to = &s->f->strategy[event_of(s)];
	int is_eval = event_of(s) == FOREIGN_EVAL;

	to->when = config_name_equal(s->text, "steps")   ? FOREIGN_STEPS
	           : config_name_equal(s->text, "epoch") ? FOREIGN_EPOCH
	           : item_is_off(s->text)                ? FOREIGN_NEVER
	                                                 : FOREIGN_UNSAID;
	if (is_eval)
		item_kept_free(&s->f->evaluates);
	if (to->when == FOREIGN_UNSAID)
		return item_refuse(s, "not supported; supported: no, steps, epoch");
	if (item_keep(&to->item, s))
		return ERR_NOMEM;
	return is_eval && to->when != FOREIGN_NEVER ? item_keep(&s->f->evaluates, s) : 0;
}

static int per_epoch(const struct item *s)
{
	enum foreign_event event = event_of(s);
	char *end;
	double count = strtod(s->text, &end);

	if (*end || !(count >= 0) || count > 1e6)
		return item_refuse(s, "not a number");
	if (item_keep(&s->f->per_epoch[event], s))
		return ERR_NOMEM;
	if (event == FOREIGN_EVAL)
		item_kept_free(&s->f->evaluates);
	return event != FOREIGN_EVAL || !(count > 0) ? 0 : item_keep(&s->f->evaluates, s);
}

/* transformers: fsdp="full_shard auto_wrap offload"; axolotl: the same as a list */
static int fsdp_words(const struct item *s)
{
	const char *p = s->text;
	char word[40];
	int err = 0;

	if (item_is_off(s->text))
		return 0;
	while (*p && !err) {
		size_t len;

		p += strspn(p, " ,[]\"'");
		len = strcspn(p, " ,[]\"'");
		if (!len)
			break;
		snprintf(word, sizeof(word), "%.*s", (int)len, p);
		p += len;
		if (config_name_equal(word, "offload"))
			err = item_set(s, "cpu_offload", "on", CONFIG_WEAK);
		else if (!config_name_equal(word, "auto_wrap"))
			err = item_set(s, "sharding_strategy", word, CONFIG_WEAK);
	}
	return err;
}

static int reshard(const struct item *s)
{
	if (config_name_in(s->text, ON))
		return item_set(s, "sharding_strategy", "FULL_SHARD", CONFIG_WEAK);
	if (item_is_off(s->text))
		return item_set(s, "sharding_strategy", "SHARD_GRAD_OP", CONFIG_WEAK);
	return item_set(s, "sharding_strategy", s->text, CONFIG_WEAK);
}

static int zero(const struct item *s)
{
	static const char *const stages[] = {"NO_SHARD", NULL, "SHARD_GRAD_OP", "FULL_SHARD"};
	const char *what = strchr(s->name, '.') + 1;

	if (config_name_equal(what, "zero_stage")) {
		if (strlen(s->text) != 1 || !strchr("023", *s->text))
			return item_refuse(s, "not supported; supported: 0, 2, 3");
		return item_set(s, "sharding_strategy", stages[*s->text - '0'], CONFIG_WEAK);
	}
	if (item_is_off(s->text))
		return 0;
	if (!config_name_equal(s->text, "cpu"))
		return item_refuse(s, "not supported; supported: cpu, none");
	s->f->zero_offload |= config_name_equal(what, "offload_param_device")
	                              ? CONFIG_OFFLOAD_PARAMS
	                              : CONFIG_OFFLOAD_OPTIMIZER | CONFIG_OFFLOAD_GRADIENTS;
	return item_keep(&s->f->zero, s);
}

static int total_batch(const struct item *s)
{
	char *end;
	long rows = strtol(s->text, &end, 10);

	if (*end || rows < 1 || rows > 1000000)
		return item_refuse(s, "not a number of rows");
	s->f->total_batch = rows;
	return item_keep(&s->f->total_batch_item, s);
}

/* Of a Python name the last part says what it is. */
static int component(const struct item *s)
{
	const char *dot = strrchr(s->text, '.'), *last = dot ? dot + 1 : s->text;

	if (config_name_equal(s->name, "model._component_"))
		return strstr(last, "qlora")
		               ? item_refuse(s, ITEM_NOT_QUANTIZED "write lora in place of qlora")
		       : strstr(last, "lora") ? lora_switch(s)
		                              : item_pass(s);
	if (config_name_equal(s->name, "loss._component_"))
		return strstr(last, "CrossEntropy") || strstr(last, "CEWithChunked")
		               ? item_pass(s)
		               : item_refuse(s, "only cross-entropy is supported");
	if (config_name_equal(s->name, "lr_scheduler._component_"))
		return item_set(s, "lr_scheduler_type", last, CONFIG_STRONG);
	if (config_name_equal(s->name, "dataset.source"))
		return config_name_in(s->text, "json text csv parquet")
		               ? 0
		               : item_set(s, "data", s->text, CONFIG_WEAK);
	if (config_name_in(last, "alpaca_dataset alpaca_cleaned_dataset")) {
		int err = item_set(s, "train_on_inputs", "on", CONFIG_WEAK); /* the default of these two */

		if (!err)
			err = item_set(s, "alpaca_form", "stanford_newline", CONFIG_WEAK);
		return err ? err : item_set(s, "data_format", "alpaca", CONFIG_STRONG);
	}
	if (config_name_equal(last, "text_completion_dataset"))
		return item_set(s, "data_format", "text", CONFIG_STRONG);
	if (config_name_equal(last, "chat_dataset"))
		return item_set(s, "data_format", "messages", CONFIG_WEAK);
	return item_refuse(
	        s, "not supported; supported: alpaca_dataset, chat_dataset, text_completion_dataset");
}

/* A part of a list of data sets, named by its last word. */
static int data_set(const struct item *s)
{
	static const char *const parts[] = {"path", "data_files", "weight", "type"};
	static const struct {
		const char *type, *key, *value;
	} axolotl[] = {/* in Stanford's words and a newline, whatever the chat template */
	        {"alpaca", "alpaca_form", "stanford_newline"}, {"completion", "long_rows", "split"}};
	const char *last = strrchr(s->name, '.') + 1, *text = s->text;
	int is_type = s->f->dialect == DIALECT_AXOLOTL && config_name_equal(last, "type");
	int rc = is_type ? preference_set_type(&text, s) : 0;

	for (size_t i = 0; is_type && i < sizeof(axolotl) / sizeof(*axolotl) && !rc; i++)
		if (config_name_equal(s->text, axolotl[i].type))
			rc = item_set(s, axolotl[i].key, axolotl[i].value, CONFIG_WEAK);
	for (int part = 0; part < FOREIGN_SET_PARTS; part++)
		if (config_name_equal(last, parts[part]))
			return rc ? rc
			          : foreign_sets_add(
			                    &s->f->sets, (enum foreign_set_part)part, s->name, text, s->line);
	return err_set(ERR_INTERNAL, "no meaning for %s", s->name);
}

static int mix_weights(const struct item *s)
{
	return item_is_off(s->text) ? 0 : foreign_sets_weights(&s->f->sets, s->name, s->text, s->line);
}

static int mix_strategy(const struct item *s)
{
	if (config_name_in(s->text, "interleave_under interleave_over"))
		return item_set(s, "data_mix", s->text, CONFIG_STRONG);
	return config_name_equal(s->text, "concat")
	               ? 0
	               : item_refuse(
	                         s, "not supported; supported: concat, interleave_under, interleave_over");
}

/* torchtune: of a chat_dataset. Both readers look at the messages themselves. */
static int conversation_style(const struct item *s)
{
	if (config_name_in(s->text, "openai sharegpt"))
		return 0;
	return item_refuse(s, "not supported; supported: openai, sharegpt");
}

static int optimizer(const struct item *s)
{
	const char *dot = strrchr(s->text, '.'), *last = dot ? dot + 1 : s->text;

	if (!*s->text || config_name_in(s->text, ADAMW) || config_name_in(last, "AdamW"))
		return 0;
	if (config_name_in(last, "paged_adamw paged_adamw_32bit PagedAdamW PagedAdamW32bit"))
		return item_pass(s); /* moments are in host memory anyway */
	if (config_name_in(last,
	            "adamw_8bit adamw_bnb_8bit adamw_torch_8bit paged_adamw_8bit AdamW8bit PagedAdamW8bit")) {
		log_info("%s=%s: reading it as optimizer_state=8bit", s->name, s->text);
		return item_set(s, "optimizer_state", "8bit", CONFIG_WEAK);
	}
	return item_refuse(s, "only AdamW is supported");
}

/* Ranks are started by mpirun or srun, not by a file. */
static int processes(const struct item *s)
{
	char *end;
	long count = strtol(s->text, &end, 10);
	struct str place = {0};
	struct launch launch;

	if (*end || count < 1 || count > 1000000)
		return item_refuse(s, "must be a number of processes");
	launch_read_any(&launch);
	if (count == 1 || !config_trains(s->c) || launch.size > 1)
		return 0;
	config_place(&place, s->layer, s->line);
	log_warn("%s%s=%ld has no effect: one rank trains, with 1/%ld of the rows of a step; for %ld ranks "
	         "set ranks=%ld",
	        place.data ? place.data : "", s->name, count, count, count, count);
	str_free(&place);
	return 0;
}

static int betas(const struct item *s)
{
	char first[32];
	const char *comma = strchr(s->text, ',');
	int err;

	if (!comma || comma - s->text >= (int)sizeof(first))
		return item_refuse(s, "not two numbers");
	snprintf(first, sizeof(first), "%.*s", (int)(comma - s->text), s->text);
	err = item_set(s, "adam_beta1", first + strspn(first, "[( "), CONFIG_STRONG);
	return err ? err : item_set(s, "adam_beta2", comma + 1 + strspn(comma + 1, " "), CONFIG_STRONG);
}

/* TRL: each of the two is about rows of its own kind. */
static int only_loss(const struct item *s)
{
	static const char *const words[] = {"off", "prompts", "chats", "on"};
	const struct config_key *key = config_key_find("train_on_inputs");
	int is_assistant = config_name_equal(s->name, "assistant_only_loss");
	int bit = is_assistant ? DATASET_INPUTS_CHATS : DATASET_INPUTS_PROMPTS;
	int bits = item_is_off(s->text) ? s->c->train_on_inputs | bit : s->c->train_on_inputs & ~bit;

	if (!item_is_off(s->text) && !config_name_in(s->text, ON))
		return item_refuse(s, "is neither on nor off");
	if (s->f->only_loss) /* the other one set it */
		s->layer->seen[key - config_keys] = 0;
	s->f->only_loss |= bit;
	s->f->assistant_only_said |= is_assistant;
	return item_set(s, "train_on_inputs", words[bits / DATASET_INPUTS_PROMPTS], CONFIG_STRONG);
}

static int finetuning(const struct item *s)
{
	return config_name_equal(s->text, "freeze") ? item_refuse(s, ITEM_BY_NAME ITEM_TRAINABLE_EXAMPLE)
	                                            : lora_switch(s);
}

static int do_train(const struct item *s)
{
	if (config_trains(s->c) && item_is_off(s->text))
		return item_refuse(s, "ferry train always trains; to measure the loss alone, run ferry eval");
	return item_pass(s);
}

static int keep_data_seed(const struct item *s)
{
	return item_keep(&s->f->data_seed, s);
}

static int keep_tokenizer_path(const struct item *s)
{
	return item_keep(&s->f->tokenizer_path, s);
}

/* axolotl: patterns that match from a name's beginning. Ours match whole names. */
static int unfrozen(const struct item *s)
{
	const char *p = s->text;
	struct str pattern = {0};
	int rc = 0;

	while (!rc) {
		size_t len;

		p += strspn(p, p == s->text ? " [\"'" : " ,]\"'");
		len = strcspn(p, ",\"'");
		if (!len)
			break;
		if (memchr(p, ':', len)) {
			str_free(&pattern);
			return item_refuse(s, "ferry trains whole parameters; remove the range of rows");
		}
		str_printf(&pattern, "%s(%.*s)%s", pattern.len_bytes ? "|" : "", (int)len, p,
		        p[len - 1] == '$' ? "" : ".*");
		p += len;
	}
	rc = str_check(&pattern);
	if (!rc && pattern.len_bytes)
		rc = item_set(s, "trainable", pattern.data, CONFIG_STRONG);
	str_free(&pattern);
	return rc;
}

/* The first N layers as a pattern. */
static int frozen_layers(const struct item *s)
{
	char *end;
	long count = strtol(s->text, &end, 10);
	struct str why = {0};
	int rc;

	if (item_is_off(s->text))
		return 0;
	if (*end || count < 1 || count > 200)
		return item_refuse(s, ITEM_BY_NAME ITEM_FREEZE_EXAMPLE);
	str_add(&why, ITEM_BY_NAME "freeze='model\\.layers\\.(");
	for (long i = 0; i < count; i++)
		str_printf(&why, "%s%ld", i ? "|" : "", i);
	str_add(&why, ")\\..*'");
	rc = str_check(&why);
	if (!rc)
		rc = item_refuse(s, why.data);
	str_free(&why);
	return rc;
}

static int begins(const char *name, const char *with)
{
	char part[64];

	snprintf(part, sizeof(part), "%.*s", (int)strlen(with), name);
	return config_name_equal(part, with);
}

/* A member of a key that is a JSON object. */
static int json_member(const struct item *s)
{
	static const struct {
		const char *key, *before; /* before the member's name */
	} objects[] = {{"chat_template_kwargs", ""}, {"chat_template_kwargs", "chat_template_kwargs."},
	        {"lora_rank_pattern", "lora_rank_pattern."},
	        {"lora_rank_pattern", "peft_config.rank_pattern."},
	        {"lora_alpha_pattern", "lora_alpha_pattern."},
	        {"lora_alpha_pattern", "peft_config.alpha_pattern."}};
	size_t i = sizeof(objects) / sizeof(*objects) - 1;
	const struct config_key *key;
	const char *before, *member;
	json_t *object = NULL, *value = NULL;
	char *text = NULL;
	int rc;

	while (!begins(s->name, objects[i].before))
		i--;
	member = s->name + strlen(objects[i].before);
	key = config_key_find(objects[i].key);
	before = config_text(s->c, key->name);
	rc = *before ? json_parse(&object, s->name, before, strlen(before)) : 0;
	if (!rc && !object)
		object = json_object();
	if (!rc && config_name_in(s->text, "true false"))
		value = json_boolean(config_name_equal(s->text, "true"));
	else if (!rc && json_parse(&value, s->name, s->text, strlen(s->text)))
		value = json_string(s->text);
	if (!rc && json_object_set_new(object, member, value))
		rc = err_set(ERR_INPUT, "%s is not a JSON object", key->name);
	if (!rc)
		rc = json_write(&text, object, JSON_COMPACT);
	if (!rc) {
		s->layer->seen[key - config_keys] = 0;
		rc = item_set(s, key->name, text, CONFIG_STRONG);
	}
	json_decref(object);
	mem_free(text);
	return rc;
}

/* axolotl: chat_template: jinja, with the template or its file in chat_template_jinja */
static int axolotl_template(const struct item *s)
{
	if (config_name_equal(s->name, "chat_template") && config_name_equal(s->text, "jinja"))
		return 0;
	if (strchr(s->text, '{'))
		return item_refuse(s, "write the template to a file and name it: chat_template=FILE");
	return item_set(s, "chat_template", s->text, CONFIG_STRONG);
}

/* LLaMA-Factory's names of templates: most are of models, some are others than ferry's of the same name. */
static int template_name(const struct item *s)
{
#define NAME_AND_BLANK(name) #name " "
	static const char own[] = JINJA_BUILTINS(NAME_AND_BLANK);
	int is_own = config_name_in(s->text, own), begins = config_name_in(s->text, "alpaca vicuna zephyr");
	struct str place = {0};

	if (is_own ? !begins : strchr(s->text, '/') || strchr(s->text, '.'))
		return item_set(s, "chat_template", s->text, CONFIG_STRONG);
	config_place(&place, s->layer, s->line);
	log_warn("%stemplate=%s: %s", place.data ? place.data : "", s->text,
	        begins ? "LLaMA-Factory begins a chat without a system text with one of its own, ferry does "
	                 "not; give the rows a system text if the model should see one"
	        : config_name_equal(s->text, "default")
	                ? "LLaMA-Factory writes \"Human: ...\" and \"Assistant: ...\"; ferry uses the "
	                  "model's own template"
	                : "ferry has no template of this name and uses the model's own; ferry data show "
	                  "prints a row as it is trained");
	str_free(&place);
	return item_set(s, "chat_template", is_own ? s->text : "default", CONFIG_STRONG);
}

/* axolotl: columns of a format of its own, whose text is the two fields with blanks behind them. */
static int own_instruction(const struct item *s)
{
	struct str place = {0};
	int rc = item_set(s, "alpaca_form", "stanford", CONFIG_WEAK);

	config_place(&place, s->layer, s->line);
	if (!rc && s->c->alpaca_form == CONFIG_ALPACA_FORM_STANFORD)
		log_warn("%s%s: axolotl writes these rows as \"{instruction} {input} \", ferry in Stanford's "
		         "words; "
		         "for that text make rows of prompt and completion",
		        place.data ? place.data : "", s->name);
	str_free(&place);
	return rc ? rc : item_add(s, "field_instruction");
}

static const struct {
	const char *names;
	int (*call)(const struct item *s);
} foreign_calls[] = {
        {"datasets.*.type.field_instruction", own_instruction},
        {"completion_only_loss assistant_only_loss", only_loss},
        {"finetuning_type", finetuning},
        {"adapter use_peft use_lora lora", lora_switch},
        {"lora_target_modules lora_target model.lora_attn_modules", lora_targets},
        {"lora_target_linear model.apply_lora_to_mlp", lora_targets_if},
        {"lora_dropout model.lora_dropout", lora_dropout},
        {"adapter_name_or_path", lora_path},
        {"enable_thinking chat_template_kwargs.* lora_rank_pattern.* lora_alpha_pattern.* "
         "peft_config.rank_pattern.* peft_config.alpha_pattern.*",
                json_member},
        {"peft_config.*", lora_object},
        {"do_train", do_train},
        {"data_seed", keep_data_seed},
        {"tokenizer.path", keep_tokenizer_path},
        {"unfrozen_parameters", unfrozen},
        {"freeze_layers", frozen_layers},
        {"template", template_name},
        {"stage", preference_stage},
        {"pref_loss", preference_pref_loss},
        {"rl", preference_rl},
        {"cpo_alpha", preference_cpo_alpha},
        {"loss loss_type", preference_loss_type},
        {"chat_template chat_template_jinja", axolotl_template},
        {"save_strategy eval_strategy evaluation_strategy logging_strategy", strategy},
        {"saves_per_epoch evals_per_epoch", per_epoch},
        {"fsdp", fsdp_words},
        {"fsdp.reshard_after_forward", reshard},
        {"deepspeed_config.*", zero},
        {"batch_size", total_batch},
        {"model._component_ dataset._component_ dataset.source loss._component_ lr_scheduler._component_",
                component},
        {"dataset.conversation_style", conversation_style},
        {"datasets.* data.* dataset_mixture.*", data_set},
        {"interleave_probs", mix_weights},
        {"mix_strategy", mix_strategy},
        {"optimizer.betas", betas},
        {"optimizer._component_ optim optimizer", optimizer},
        {"num_processes", processes},
};

int item_call(const struct item *s, const char *name)
{
	for (size_t i = 0; i < sizeof(foreign_calls) / sizeof(*foreign_calls); i++)
		if (foreign_name_matches(name, foreign_calls[i].names))
			return foreign_calls[i].call(s);
	return err_set(ERR_INTERNAL, "no meaning for %s", s->name);
}
