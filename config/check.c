/* Checks of required keys, unsupported values, and values that contradict each other. */
#include "config/table.h"

#include "base/dtype.h"
#include "base/err.h"
#include "base/log.h"
#include "comm/launch.h"
#include "config/embedding.h"
#include "data/source/files.h"
#include "data/source/split_part.h"
#include "data/template/moment.h"
#include "data/tokenizer/unicode.h"
#include "device/preference.h"
#include "optim/adamw_options.h"
#include "optim/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- required keys ---- */

/* Whether at least one of the keys "a|b" has a value. */
static int has_one(const struct config *c, const char *names, size_t len)
{
	while (len) {
		size_t name = 0;
		char key[64];

		while (name < len && names[name] != '|')
			name++;
		snprintf(key, sizeof(key), "%.*s", (int)name, names);
		if (*config_text(c, key))
			return 1;
		names += name + (name < len);
		len -= name + (name < len);
	}
	return 0;
}

static int check_needs(const struct config *c)
{
	const struct verb_info *info = &verb_infos[c->verb];
	const char *p = info->needs;
	struct str missing = {0};
	int count = 0;

	while (*p) {
		size_t len = strcspn(p, " ");

		if (!has_one(c, p, len)) {
			str_printf(&missing, "%s", count++ ? ", " : "");
			for (size_t i = 0; i < len; i++)
				if (p[i] == '|')
					str_add(&missing, " or ");
				else
					str_add_char(&missing, p[i]);
		}
		p += len;
		p += strspn(p, " ");
	}
	if (count)
		err_set(ERR_INPUT, "%s %s not set; usage: ferry %s %s", missing.data ? missing.data : "",
		        count > 1 ? "are" : "is", info->name, info->usage);
	str_free(&missing);
	return count ? ERR_INPUT : 0;
}

/* ---- unsupported values ---- */

static int contradiction(const struct config *c, const char *key, const char *why)
{
	return err_set(ERR_INPUT, "%s=%s %s", config_where(c, key), config_said(c, key), why);
}

static int check_refused(const struct config *c)
{
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		const struct config_origin *origin = &c->origins[i];

		if (!origin->refusal || !config_key_known(key, c->verb))
			continue;
		return err_set(ERR_UNSUPPORTED, "%s=%s %s", config_where(c, key->name), origin->shown,
		        origin->refusal);
	}
	return 0;
}

/* config.yaml must be able to repeat and resume the run. It is YAML, and YAML holds only UTF-8. */
static int check_utf8(const struct config *c)
{
	for (int i = 0; config_trains(c) && i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		const char *text = config_type_is_text(key->type)
		                           ? *(char *const *)((const char *)c + key->offset)
		                           : NULL;
		size_t at = text ? utf8_check(text, strlen(text)) : 0;

		if (text && text[at])
			return err_set(ERR_INPUT, "%s=%s is not UTF-8 at byte %zu; rename it",
			        config_where(c, key->name), text, at);
	}
	return 0;
}

/* ---- contradictions ---- */

/* Keys that say how adapters are made, in a run that makes none. */
static int check_adapters(const struct config *c)
{
	const struct {
		const char *key;
		int is_set, is_read;
	} keys[] = {
	        {"lora_alpha", c->lora_alpha != 0, c->lora_rank > 0},
	        {"loraplus_lr_ratio", c->loraplus_lr_ratio > 1, c->lora_rank > 0 || c->lora_adapter},
	        {"lora_dropout", c->lora_dropout > 0, c->lora_rank > 0 || c->lora_adapter},
	        {"use_rslora", c->use_rslora, c->lora_rank > 0},
	        {"use_dora", c->use_dora, c->lora_rank > 0 || c->lora_adapter},
	        {"lora_rank_pattern", c->lora_rank_pattern != NULL, c->lora_rank > 0 && !c->lora_adapter},
	        {"lora_alpha_pattern", c->lora_alpha_pattern != NULL, c->lora_rank > 0 && !c->lora_adapter},
	        {"lora_modules_to_save", c->lora_modules_to_save != NULL,
	                c->lora_rank > 0 && !c->lora_adapter},
	        {"lora_layers", c->lora_layers != NULL, c->lora_rank > 0 && !c->lora_adapter},
	        {"lora_layers_pattern", c->lora_layers_pattern != NULL, c->lora_rank > 0 && !c->lora_adapter},
	        {"lora_exclude_modules", c->lora_exclude_modules != NULL,
	                c->lora_rank > 0 && !c->lora_adapter},
	        {"lora_target_parameters", c->lora_target_parameters != NULL,
	                c->lora_rank > 0 && !c->lora_adapter},
	        {"lora_expert_form", c->lora_expert_form != 0, c->lora_rank > 0 || c->lora_adapter},
	        {"lora_target_modules", strcmp(config_text(c, "lora_target_modules"), "all-linear") != 0,
	                c->lora_rank > 0 && !c->lora_adapter},
	};

	if (c->verb == VERB_TRAIN && c->merge_base && c->lora_rank == 0 && !c->lora_adapter && !c->freeze &&
	        !c->trainable)
		return contradiction(c, "merge_base", "has no effect where every weight trains; remove it");
	if ((!c->lora_target_modules || !strcmp(c->lora_target_modules, "[]")) && !c->lora_target_parameters)
		return contradiction(c, "lora_target_modules", "names no module; name some, or leave it out");
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		if (!keys[i].is_set || keys[i].is_read)
			continue;
		if (!c->lora_adapter && !config_was_set(c, "lora_rank"))
			return contradiction(c, keys[i].key, "has no effect without lora_rank; set it");
		log_warn("%s has no effect %s", config_where(c, keys[i].key),
		        c->lora_adapter ? "with lora_adapter, which has its own"
		                        : "with lora_rank=0; this trains the model's own weights");
	}
	return 0;
}

/* Keys of formats in blocks, in a run that has none. */
static int check_base(const struct config *c)
{
	static const char *const keys[] = {"base_double_quant", "base_block_size"};
	int has_blocks = c->base_format == CONFIG_BASE_FORMAT_NF4 || c->base_format == CONFIG_BASE_FORMAT_FP4;

	if (c->base_block_size & (c->base_block_size - 1))
		return contradiction(
		        c, "base_block_size", "is not a power of two; use 32, 64, 128, ... 4096");
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && !has_blocks; i++)
		if (strcmp(config_text(c, keys[i]), config_key_find(keys[i])->default_text) != 0)
			log_warn("%s has no effect with base_format=%s", config_where(c, keys[i]),
			        config_text(c, "base_format"));
	return 0;
}

/* Numbers of a loss of pairs that this run does not compute. */
static int check_preference(const struct config *c)
{
	static const struct {
		const char *key;
		int what;
	} keys[] = {{"preference_beta", 0}, {"preference_label_smoothing", PREFERENCE_SMOOTHING},
	        {"preference_gamma", PREFERENCE_GAMMA}, {"preference_own_weight", 0},
	        {"preference_own_tokens", 0}, {"preference_desirable_weight", PREFERENCE_JUDGED},
	        {"preference_undesirable_weight", PREFERENCE_JUDGED}};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		if (!strcmp(config_text(c, keys[i].key), config_key_find(keys[i].key)->default_text))
			continue; /* a run's config.yaml has every key */
		if (!c->preference_loss)
			return contradiction(c, keys[i].key, "has no effect without preference_loss; set it");
		if (keys[i].what && !preference_reads((enum preference_kind)c->preference_loss, keys[i].what))
			log_warn("%s has no effect with preference_loss=%s", config_where(c, keys[i].key),
			        config_text(c, "preference_loss"));
	}
	if (c->preference_loss == PREFERENCE_EXO_PAIR && c->preference_label_smoothing == 0)
		log_warn("preference_loss=exo_pair needs a preference_label_smoothing above 0; ferry takes "
		         "0.001, "
		         "as its paper; set it");
	if (c->preference_loss == PREFERENCE_ROBUST && c->preference_label_smoothing == 0)
		log_warn("preference_loss=robust is the loss of sigmoid without preference_label_smoothing");
	if (c->preference_own_tokens == CONFIG_PREFERENCE_OWN_TOKENS_ALL && c->preference_loss &&
	        preference_reads((enum preference_kind)c->preference_loss, PREFERENCE_REFERENCE))
		return contradiction(c, "preference_own_tokens",
		        "is only supported with a preference_loss without a reference: orpo, cpo or simpo");
	if (c->preference_own_tokens == CONFIG_PREFERENCE_OWN_TOKENS_ALL &&
	        (c->preference_own_weight == 0 ||
	                (c->preference_own_weight < 0 && c->preference_loss == PREFERENCE_SIMPO)))
		log_warn("%s=all has no effect with preference_own_weight=0",
		        config_where(c, "preference_own_tokens"));
	if (c->preference_reference == CONFIG_PREFERENCE_REFERENCE_BASE && c->preference_loss &&
	        !c->lora_adapter)
		log_warn("%s=base has no effect without lora_adapter",
		        config_where(c, "preference_reference"));
	if (c->preference_reference == CONFIG_PREFERENCE_REFERENCE_BASE && !c->preference_loss)
		return contradiction(
		        c, "preference_reference", "has no effect without preference_loss; set it");
	if (c->preference_loss && c->label_smoothing_factor > 0)
		log_warn("%s has no effect with preference_loss; for pairs set preference_label_smoothing",
		        config_where(c, "label_smoothing_factor"));
	if (c->preference_loss && c->packing != CONFIG_PACKING_OFF)
		return contradiction(c, "packing",
		        c->preference_loss == PREFERENCE_KTO
		                ? "is set, but judged answers are not packed; set packing=off"
		                : "is set, but pairs are not packed; set packing=off");
	if (c->preference_loss == PREFERENCE_KTO && c->preference_own_weight > 0)
		return contradiction(
		        c, "preference_own_weight", "is not supported with preference_loss=kto; remove it");
	if (c->preference_loss == PREFERENCE_KTO && c->preference_desirable_weight == 0 &&
	        c->preference_undesirable_weight == 0)
		return contradiction(c, "preference_desirable_weight",
		        "and preference_undesirable_weight=0 train nothing; set one of them above 0");
	if (c->preference_loss == PREFERENCE_KTO && c->per_device_train_batch_size < 2)
		log_warn("%s=%s: preference_loss=kto estimates kl from the answers of a micro-batch, here "
		         "from one; set it to 4 or more",
		        config_where(c, "per_device_train_batch_size"),
		        config_said(c, "per_device_train_batch_size"));
	return 0;
}

static int check_train(const struct config *c)
{
	if (!config_trains(c) && c->verb != VERB_PLAN)
		return 0;
	if (c->max_steps == 0 || (c->max_steps < 0 && !(c->num_train_epochs > 0)))
		return contradiction(c, c->max_steps == 0 ? "max_steps" : "num_train_epochs",
		        "trains nothing; max_steps must be -1 or above 0, num_train_epochs above 0");
	if (c->packing != CONFIG_PACKING_OFF && !c->max_length)
		return contradiction(c, "packing", "needs max_length; set it");
	if (c->gradient_dtype == DTYPE_BF16 && c->compute_dtype == DTYPE_F32)
		return contradiction(
		        c, "gradient_dtype", "would round the gradients of compute_dtype=fp32; use fp32");
	if (c->eval_data && c->eval_split > 0)
		return contradiction(
		        c, "eval_split", "holds back rows, but eval_data is set too; use one of them");
	if (c->eval_steps != 0 && !c->eval_data && !(c->eval_split > 0))
		return contradiction(
		        c, "eval_steps", "needs rows to evaluate on; set eval_data or eval_split");
	if (c->sample_steps != 0 && !c->sample_prompt)
		return contradiction(c, "sample_steps", "needs sample_prompt; set it");
	if (c->min_lr_rate > 0 && c->lr_scheduler_type != SCHEDULE_COSINE_WITH_MIN_LR)
		return contradiction(
		        c, "min_lr_rate", "has no effect without lr_scheduler_type=cosine_with_min_lr");
	if (c->resume_from_checkpoint && c->overwrite_output_dir)
		return contradiction(c, "overwrite_output_dir",
		        "would delete what resume_from_checkpoint needs; use one of them");
	return check_preference(c) || check_adapters(c) ? ERR_INPUT : 0;
}

/* Keys of embedders and classifiers, in verbs that read such rows. */
static int check_embedding(const struct config *c)
{
	return config_trains(c) || c->verb == VERB_PLAN || c->verb == VERB_EVAL || c->verb == VERB_DATA
	               ? embedding_check(c)
	               : 0;
}

static int check_generate(const struct config *c)
{
	static const char *const prompts[] = {"prompt", "prompt_ids", "prompt_file"};
	const char *first = NULL;

	if (c->verb != VERB_GENERATE)
		return 0;
	for (size_t i = 0; i < sizeof(prompts) / sizeof(*prompts); i++) {
		if (!*config_text(c, prompts[i]))
			continue;
		if (first)
			return err_set(
			        ERR_INPUT, "%s and %s are both set; use one of them", first, prompts[i]);
		first = prompts[i];
	}
	if (strcmp(config_text(c, "data_format"), "alpaca") &&
	        !strcmp(config_where(c, "alpaca_form"), "alpaca_form"))
		return contradiction(c, "alpaca_form", "needs data_format=alpaca; set it");
	if (c->system && !c->chat)
		return contradiction(c, "system", "needs chat=on; set it");
	if (c->chat && c->prompt_ids)
		return contradiction(c, "chat", "does not take prompt_ids; use prompt");
	return 0;
}

static int check_date(const struct config *c)
{
	int64_t moment;

	if (!c->chat_template_date || !moment_parse(&moment, c->chat_template_date))
		return 0;
	return contradiction(c, "chat_template_date",
	        "is no date; write it as 2026-11-27, or with the time as 2026-11-27T22:19:32");
}

static int check_splits(const struct config *c)
{
	static const char *const keys[] = {"data_split", "eval_data_split"};
	char name[SPLIT_NAME_BYTES];
	struct split_part part;
	int rc = 0;

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys) && !rc; i++) {
		if (!*config_text(c, keys[i]))
			continue;
		rc = split_part_parse(name, &part, config_text(c, keys[i]));
		if (!rc)
			rc = files_split_check(name);
		if (rc)
			rc = err_note(rc, "%s", config_where(c, keys[i]));
	}
	return rc;
}

/* Refuses launchers that ferry cannot join, and several processes of a verb that runs as one: each would
 * write the same output. */
static int check_ranks(const struct config *c)
{
	int knows_ranks = c->verb == VERB_TRAIN || c->verb == VERB_EVAL;
	struct launch launch;

	launch_read_any(&launch);
	if (launch.size == 1 || (knows_ranks && !launch.is_foreign) ||
	        (!knows_ranks && !verb_makes_result(c->verb) && !(verb_infos[c->verb].facts & VERB_IS_ALONE)))
		return 0;
	if (knows_ranks)
		return err_set(ERR_UNSUPPORTED,
		        "cannot join the %d processes of %s (%s); start ferry without it and set ranks=N, or "
		        "use mpirun or srun",
		        launch.size, launch.program, launch.said);
	return err_set(ERR_UNSUPPORTED, "%s runs as one process, not %d (%s); start it without %s",
	        verb_name(c->verb), launch.size, launch.said, launch.program);
}

/* Refuses an instruction set that this CPU lacks. */
static int check_isa(const struct config *c)
{
	enum adamw_isa isa;

	if (c->isa == CONFIG_ISA_AUTO || !config_key_known(config_key_find("isa"), c->verb) ||
	        !adamw_isa_find(&isa, config_text(c, "isa")))
		return 0;
	return err_note(ERR_INPUT, "%s", config_where(c, "isa"));
}

/* Warns of settings that cannot take effect but do no harm. */
static void warn_without_effect(const struct config *c)
{
	if (c->verb == VERB_GENERATE && config_was_set(c, "max_length") && !*config_set_at(c, "max_length"))
		log_warn("%s=%s has no effect on answers; max_new_tokens is their limit",
		        config_where(c, "max_length"), config_said(c, "max_length"));
	if (!c->deterministic && config_key_known(config_key_find("deterministic"), c->verb))
		log_warn("%s=off changes nothing; every run gives the same bits",
		        config_where(c, "deterministic"));
}

int config_check(const struct config *c)
{
	int err = check_refused(c);

	if (!err)
		err = check_needs(c);
	if (!err)
		err = check_utf8(c);
	if (!err)
		err = check_train(c);
	if (!err)
		err = check_base(c);
	if (!err)
		err = check_embedding(c);
	if (!err)
		err = check_generate(c);
	if (!err)
		err = check_date(c);
	if (!err)
		err = check_splits(c);
	if (!err)
		err = check_isa(c);
	if (!err)
		err = check_ranks(c);
	if (!err)
		warn_without_effect(c);
	return err;
}
